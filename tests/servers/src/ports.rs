//! Free ports on loopback, and names that nobody else has.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// First port, and how many.
const PORTS: (u16, u16) = (15_000, 17_000);

/// A port that nobody listens on just now. All lie below what Linux gives to outgoing connections (from 32768), so that the port of a
/// server that is down for a while stays free for it. Two tests may still draw the same one in the same moment: who starts a server looks
/// whether it is its own that answers, and draws again.
pub fn free() -> u16 {
    let drawn = || PORTS.0 + (draw() % u64::from(PORTS.1)) as u16;
    std::iter::repeat_with(drawn).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap_or(PORTS.0)
}

/// Sixteen hexadecimal digits: a node's name, its cookie, its password.
pub fn token() -> String {
    format!("{:016x}", draw())
}

/// The standard library's seed of hash tables is drawn by the system for every thread and differs with every call.
fn draw() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
