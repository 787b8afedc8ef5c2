//! Ctrl-C and SIGTERM: the first asks to stop, the second ends the process at once.

use kernelopt_shared::exit::{ExitCode, UserError};
use kernelopt_shared::stop::Stop;
use kernelopt_shared::task::AgentError;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time between two looks for a stop.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// A stop that the first signal asks for.
///
/// # Errors
/// No thread or no signal handler could be had.
pub fn stop_on_signal() -> Result<Stop, AgentError> {
    let stop = Stop::default();
    let asked = stop.clone();
    let error = |source| AgentError::Io { doing: "watching for Ctrl-C".into(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(error)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(error)?, signal(SignalKind::terminate()).map_err(error)?)
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if asked.asked() {
                        std::process::exit(AgentError::Stopped.exit_code() as i32);
                    }
                    eprintln!("\nstopping: what was measured is kept; once more ends at once");
                    asked.ask();
                }
            });
        })
        .map_err(error)?;
    Ok(stop)
}

/// A token that is cancelled when `stop` is asked for.
pub fn token(stop: Stop) -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let watch = move || {
        while !stop.asked() && !cancelled.is_cancelled() {
            std::thread::sleep(LOOK);
        }
        cancelled.cancel();
    };
    // Without this thread Ctrl-C works at its second time.
    let _ = std::thread::Builder::new().name("stop".into()).spawn(watch);
    token
}

/// Cancelled by the first Ctrl-C or SIGTERM, with these words; the second ends the process at once. Within a runtime.
///
/// # Errors
/// No signal handler could be had.
pub fn shutdown(words: &'static str) -> Result<CancellationToken, AgentError> {
    let error = |source| AgentError::Io { doing: "watching for signals".into(), source };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt()).map_err(error)?, signal(SignalKind::terminate()).map_err(error)?);
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if asked.is_cancelled() {
                std::process::exit(ExitCode::Interrupted as i32);
            }
            eprintln!("{words}");
            asked.cancel();
        }
    });
    Ok(token)
}

/// True where an error is nothing but the stop that was asked for.
pub fn is_stop(code: ExitCode) -> bool {
    code == ExitCode::Interrupted
}
