//! The side of the conversation that owns the device.

use std::ffi::OsString;
use std::path::PathBuf;

use kernelopt_shared::verdict::Evidence;

use super::bandwidth;
use super::device::{Device, DeviceError};
use super::driver::CudaDevice;
use super::nvml::Monitor;
use super::order::{Judge, OpenTarget, Request, Response};
use super::process::{Progress, serve};
use super::referee::{self, Foul, Judgement, Session};

/// `gpu UUID OPS`: owns the GPU, with our own kernels from the file `OPS`, and answers requests until the parent goes.
pub(crate) fn own_device(mut words: impl Iterator<Item = OsString>) -> Result<(), String> {
    let usage = "gpu UUID OPS";
    let uuid = words.next().and_then(|word| word.into_string().ok()).ok_or(usage)?;
    let path = words.next().map(PathBuf::from).ok_or(usage)?;
    let ops = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut server = CudaDevice::open(&uuid, &ops, Monitor::open().ok()).map(Server::new);
    serve(|request: Request, progress| match &mut server {
        Ok(server) => server.answer(request, progress),
        Err(error) => Response::Failed { what: error.to_string(), lost: true },
    })
    .map_err(|e| e.to_string())
}

/// `gpus`: prints the GPUs, or why there are none, as JSON.
pub(crate) fn list_devices() -> Result<(), String> {
    let found = CudaDevice::list();
    serde_json::to_writer(std::io::stdout(), &found).map_err(|e| e.to_string())
}

/// Answers requests, one after the other.
pub struct Server<D> {
    device: D,
    session: Option<Session>,
}

impl<D: Device> Server<D> {
    /// A server of `device`.
    pub const fn new(device: D) -> Self {
        Self { device, session: None }
    }

    /// Answers one request.
    pub fn answer(&mut self, request: Request, progress: &mut Progress<'_>) -> Response {
        match request {
            Request::Describe => match bandwidth::measure(&mut self.device) {
                Ok(bandwidth) => Response::Described { facts: self.device.facts().clone(), bandwidth },
                Err(error) => Response::Failed { what: error.to_string(), lost: true },
            },
            Request::Open(order) => {
                progress.note("running the compiler's own kernel");
                self.open(&order)
            }
            Request::Judge(order) => {
                progress.note("judging");
                self.judge(&order)
            }
        }
    }

    fn open(&mut self, order: &OpenTarget) -> Response {
        let closed = self.session.take().map_or(Ok(()), |session| session.close(&mut self.device));
        let opened = closed.map_err(Foul::from).and_then(|()| Session::open(&mut self.device, order));
        match opened {
            Ok(session) => {
                let launch_ns = session.launch_ns;
                self.session = Some(session);
                Response::Opened { launch_ns }
            }
            // What was taken until then is given back by the end of the process.
            Err(Foul::Baseline(what)) => Response::Baseline { what, lost: true },
            Err(Foul::Candidate(verdict)) => Response::Baseline { what: format!("is refused: {verdict:?}"), lost: true },
            Err(Foul::Trespass(what)) => Response::Baseline { what, lost: true },
            // The rest of the model may fit.
            Err(Foul::Device(error @ DeviceError::OutOfMemory { .. })) => {
                Response::Baseline { what: format!("cannot be judged on this GPU: {error}"), lost: true }
            }
            Err(Foul::Device(error)) => Response::Failed { what: error.to_string(), lost: true },
        }
    }

    fn judge(&mut self, order: &Judge) -> Response {
        let Some(session) = &mut self.session else {
            return Response::Failed { what: "no target is open".into(), lost: false };
        };
        let device = self.device.facts().name.clone();
        let mut evidence = Evidence { seed: order.seed, device, ..Default::default() };
        match referee::judge(session, &mut self.device, order, &mut evidence) {
            Ok(Judgement { verdict, lost }) => Response::Judged { verdict, evidence: Box::new(evidence), lost },
            Err(Foul::Candidate(verdict)) => Response::Judged { verdict, evidence: Box::new(evidence), lost: true },
            Err(Foul::Baseline(what) | Foul::Trespass(what)) => Response::Baseline { what, lost: true },
            Err(Foul::Device(error)) => Response::Failed { what: error.to_string(), lost: true },
        }
    }
}
