//! What the broker brings, as inputs of the actor.

use std::sync::Arc;
use std::time::Duration;

use kernelopt_shared::broker::link::CoordinatorEnd;
use kernelopt_shared::broker::{Broker, BrokerError, Leadership};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::actor::Input;
use super::tally::Tally;

/// Time between two looks at the clock: how late an expiry is noticed at most.
const TICK: Duration = Duration::from_millis(200);

/// Listens until `stop` is cancelled; then the actor is told.
///
/// # Errors
/// The broker refuses what must be listened to.
pub(super) async fn start(
    broker: Arc<dyn Broker>,
    inputs: mpsc::Sender<Input>,
    mut leadership: Box<dyn Leadership>,
    tally: &Tally,
    stop: CancellationToken,
) -> Result<(), BrokerError> {
    let end = CoordinatorEnd::new(broker, super::courier::on_unread(tally));
    let (mut reports, mut pulses) = (end.reports().await?, end.pulses().await?);
    let (to, over) = (inputs.clone(), stop.clone());
    tokio::spawn(async move {
        while let Some(report) = over.run_until_cancelled(reports.next()).await.flatten() {
            if to.send(Input::Report(report)).await.is_err() {
                break;
            }
        }
    });
    let (to, over) = (inputs.clone(), stop.clone());
    tokio::spawn(async move {
        while let Some(pulse) = over.run_until_cancelled(pulses.next()).await.flatten() {
            pulse.receipt.acknowledge().await;
            if to.send(Input::Pulse(Box::new(pulse.message))).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leads = true;
        loop {
            let input = tokio::select! {
                () = stop.cancelled() => Input::Stop,
                () = leadership.lost(), if leads => {
                    leads = false;
                    Input::Deposed
                }
                _ = ticks.tick() => Input::Tick,
            };
            let last = matches!(input, Input::Stop);
            if inputs.send(input).await.is_err() || last {
                break;
            }
        }
    });
    Ok(())
}
