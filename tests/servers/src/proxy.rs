//! A network that can be cut.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ServerError;

/// Bytes carried at once.
const CHUNK: usize = 16 << 10;

/// Carries connections from a port of its own to another one on loopback, and cuts, refuses or slows them when told.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    to: u16,
    open: AtomicBool,
    ended: AtomicBool,
    delay_ms: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy to `to`, open.
    ///
    /// # Errors
    /// No port could be had.
    pub fn to(to: u16) -> Result<Self, ServerError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, crate::ports::free())).map_err(ServerError::io("a proxy's port"))?;
        let port = listener.local_addr().map_err(ServerError::io("a proxy's port"))?.port();
        let state = Arc::new(State {
            to,
            open: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            streams: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                // A client that is refused, or whose server is down, sees its connection end.
                let _ = shared.carry(client);
            }
        });
        Ok(Self { port, state })
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections; new ones are carried again.
    pub fn cut(&self) {
        let mut streams = self.state.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Cuts all connections and new ones at once, until [`Self::open`].
    pub fn close(&self) {
        self.state.open.store(false, Ordering::SeqCst);
        self.cut();
    }

    /// Carries connections again.
    pub fn open(&self) {
        self.state.open.store(true, Ordering::SeqCst);
    }

    /// Every chunk waits so long before it is handed on, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.cut();
    }
}

impl State {
    fn carry(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ways = [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)];
        {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            // Looked at under the lock, so that a connection is either refused here or seen by whoever closes.
            if !self.open.load(Ordering::SeqCst) {
                return client.shutdown(Shutdown::Both);
            }
            streams.extend([client, server]);
        }
        for (from, to) in ways {
            let state = Arc::clone(self);
            thread::spawn(move || {
                let _ = state.pump(&from, &to);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut chunk = [0u8; CHUNK];
        loop {
            let read = from.read(&mut chunk)?;
            if read == 0 {
                return Ok(());
            }
            match self.delay_ms.load(Ordering::SeqCst) {
                0 => {}
                ms => thread::sleep(Duration::from_millis(ms)),
            }
            to.write_all(&chunk[..read])?;
        }
    }
}
