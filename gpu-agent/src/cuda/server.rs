//! The side of the conversation that owns the device.

use kernelopt_shared::task::BandwidthCurve;
use kernelopt_shared::verdict::Evidence;

use super::device::{Device, DeviceError};
use super::order::{Judge, OpenTarget, Request, Response};
use super::referee::{self, Foul, Session};

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

    /// Answers one request. `measure` measures the memory's bandwidth.
    pub fn answer(&mut self, request: Request, measure: impl FnOnce(&mut D) -> Result<BandwidthCurve, DeviceError>) -> Response {
        match request {
            Request::Describe => match measure(&mut self.device) {
                Ok(bandwidth) => Response::Described { facts: self.device.facts().clone(), bandwidth },
                Err(error) => Response::Failed { what: error.to_string(), lost: true },
            },
            Request::Open(order) => self.open(&order),
            Request::Judge(order) => self.judge(&order),
        }
    }

    fn open(&mut self, order: &OpenTarget) -> Response {
        // Inputs of the opening follow from what is opened; those of evaluations from their own seeds.
        let seed = u64::from_le_bytes(std::array::from_fn(|i| order.target.fingerprint.as_bytes()[i]));
        let closed = self.session.take().map_or(Ok(()), |session| session.close(&mut self.device));
        let opened = closed.map_err(Foul::from).and_then(|()| Session::open(&mut self.device, order, seed));
        match opened {
            Ok(session) => {
                self.session = Some(session);
                Response::Opened
            }
            // What was taken until then is given back by the end of the process.
            Err(Foul::Baseline(what)) => Response::Baseline { what, lost: true },
            Err(Foul::Candidate(verdict)) => Response::Baseline { what: format!("is refused: {verdict:?}"), lost: true },
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
            Ok(verdict) => {
                let lost = matches!(verdict, kernelopt_shared::verdict::Verdict::Crashed { .. });
                Response::Judged { verdict, evidence: Box::new(evidence), lost }
            }
            Err(Foul::Candidate(verdict)) => Response::Judged { verdict, evidence: Box::new(evidence), lost: true },
            Err(Foul::Baseline(what)) => Response::Baseline { what, lost: true },
            Err(Foul::Device(error)) => Response::Failed { what: error.to_string(), lost: true },
        }
    }
}
