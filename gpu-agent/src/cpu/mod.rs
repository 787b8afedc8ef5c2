//! C++ candidates on a processor: built, then run in sandboxed child processes over shared memory.
//!
//! This is the part of the referee that a candidate must not be able to touch. It is mechanism only; what inputs are drawn,
//! what is right and what is faster is decided above it.
//!
//! | module | noun |
//! |---|---|
//! | [`build`] | source to shared library, bounded and cached |
//! | [`arena`] | shared memory for arguments, in several copies, with guard zones |
//! | [`runner`] | one candidate in one process; the parent holds the clock |
//! | [`sandbox`] | the walls around it, and a check that they hold here |
//! | [`fault`] | what can go wrong with it, and the verdict that follows |
//! | [`child`] | this program's side as a child process |
//!
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! # use kernelopt_gpu_agent::cpu::{arena::Arena, build::*, child::Reexec, runner::*};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (source, signature) = ("", Vec::new());
//! let reexec = Reexec { program: std::env::current_exe()?, words: vec!["runner".into()] };
//! let options = BuilderOptions {
//!     reexec: reexec.clone(),
//!     toolchain: Toolchain::plain()?,
//!     cache: "cache".into(),
//!     limits: BuildLimits::default(),
//!     permit_weak_sandbox: false,
//! };
//! let library = Builder::new(options)?.build(source, &signature)?.library;
//!
//! let zygote = Arc::new(Zygote::new(ZygoteOptions { reexec, preload: Vec::new(), threads: 2, permit_weak_sandbox: false }));
//! let mut arena = Arena::new(8, &[4096, 4096], 1 << 30)?; // eight copies of two storages
//! let arguments = (0..2).map(|storage| ArgumentPlan::Pointer { storage, offset_bytes: 0 }).collect();
//! let plan = Plan { library, arguments, flush_denormal: false, limits: Limits::default() };
//! let mut runner = Runner::start(&zygote, &plan, &arena)?;
//!
//! arena.bytes_mut(3, 0).fill(1); // inputs and poison; the process is stopped
//! let elapsed = runner.run(&[3], Duration::from_secs(10))?;
//! println!("{elapsed:?}, {:?}", &arena.bytes(3, 1)[..8]);
//! # Ok(()) }
//! ```

pub mod arena;
pub mod build;
pub mod child;
mod entropy;
pub mod fault;
mod fpenv;
mod pidfd;
pub mod runner;
pub mod sandbox;
pub(crate) mod waiting;
mod wire;

pub use wire::MAX_LAUNCHES;
