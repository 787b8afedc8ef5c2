//! The connection, made again for ever.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use lapin::{Channel, Connection, ConnectionProperties, Event};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::broker;
use super::names::Names;
use super::options::{OptionsError, RabbitOptions, Target};
use super::publisher::Publishers;
use crate::broker::backoff::Backoff;
use crate::broker::{Address, BrokerError, BrokerState};

/// How often a connection is looked at, beside being told of its end.
const LOOK: Duration = Duration::from_secs(1);

/// What all parts of one broker share.
pub(super) struct Core {
    pub(super) options: RabbitOptions,
    pub(super) names: Names,
    pub(super) runtime: Handle,
    pub(super) state: watch::Sender<BrokerState>,
    /// Asked to end.
    pub(super) closed: CancellationToken,
    /// Has ended.
    pub(super) ended: CancellationToken,
    /// One turn to lead per process: to its own connection an exclusive queue is open.
    pub(super) turn: Arc<Semaphore>,
    session: watch::Sender<Option<Arc<Session>>>,
    target: Target,
}

/// One connection, from its beginning to its end.
pub(super) struct Session {
    connection: Connection,
    pub(super) publishers: Publishers,
    pub(super) ended: CancellationToken,
    declared: Mutex<HashSet<Address>>,
}

impl Session {
    /// A new channel.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.connection.create_channel().await.map_err(|e| broker(&e))
    }

    pub(super) fn declared(&self, address: &Address) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).contains(&kept(address))
    }

    pub(super) fn note_declared(&self, address: &Address) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).insert(kept(address));
    }

    /// It is not there any more, whoever took it away.
    pub(super) fn forget_declared(&self, address: &Address) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).remove(&kept(address));
    }
}

/// Agents share one exchange, so that the set of what is declared stays small.
fn kept(address: &Address) -> Address {
    if matches!(address, Address::Agent(_)) { Address::Pulses } else { address.clone() }
}

/// Begins to connect.
pub(super) fn start(options: RabbitOptions) -> Result<Arc<Core>, OptionsError> {
    let target = options.target()?;
    let core = Arc::new(Core {
        names: Names::new(&options.prefix),
        runtime: Handle::current(),
        state: watch::Sender::new(BrokerState::Down { reason: "not connected yet".into() }),
        closed: CancellationToken::new(),
        ended: CancellationToken::new(),
        turn: Arc::new(Semaphore::new(1)),
        session: watch::Sender::new(None),
        target,
        options,
    });
    tokio::spawn(supervise(core.clone()));
    Ok(core)
}

impl Core {
    /// The session, waited for as long as a request may take.
    pub(super) async fn session(&self) -> Result<Arc<Session>, BrokerError> {
        let mut sessions = self.session.subscribe();
        let found = timeout(self.options.request_timeout, sessions.wait_for(Option::is_some));
        let found = tokio::select! {
            () = self.closed.cancelled() => None,
            found = found => found.ok().and_then(Result::ok).and_then(|session| session.clone()),
        };
        found.ok_or_else(|| self.down())
    }

    /// The session, waited for until the broker is closed.
    pub(super) async fn session_whenever(&self) -> Option<Arc<Session>> {
        let mut sessions = self.session.subscribe();
        tokio::select! {
            () = self.closed.cancelled() => None,
            found = sessions.wait_for(Option::is_some) => found.ok()?.clone(),
        }
    }

    /// Why nothing goes on.
    pub(super) fn down(&self) -> BrokerError {
        BrokerError::Down(match &*self.state.borrow() {
            BrokerState::Up => "it does not answer".into(),
            BrokerState::Blocked { reason } => format!("it takes no publications: {reason}"),
            BrokerState::Down { reason } => reason.clone(),
        })
    }

    /// A request, with a deadline.
    pub(super) async fn within<T>(&self, request: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
        timeout(self.options.request_timeout, request).await.unwrap_or_else(|_| Err(self.down()))
    }

    async fn connect(&self) -> Result<Connection, String> {
        let name = self.options.connection_name.as_str();
        // Recovery stays off, see the module.
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let runtime = lapin::runtime::default_runtime().map_err(|e| e.to_string())?;
        let connect = Connection::connect_uri_with_config(self.target.uri.clone(), properties, self.target.tls(), runtime);
        match timeout(self.options.connect_timeout, connect).await {
            Ok(made) => made.map_err(|e| e.to_string()),
            Err(_) => Err(format!("no answer within {} s", self.options.connect_timeout.as_secs())),
        }
    }
}

/// Connects, watches, and connects again, until it is closed.
async fn supervise(core: Arc<Core>) {
    let mut backoff = Backoff::new(core.options.first_wait, core.options.longest_wait);
    while !core.closed.is_cancelled() {
        let made = tokio::select! {
            () = core.closed.cancelled() => break,
            made = core.connect() => made,
        };
        let reason = match made {
            Ok(connection) => {
                backoff.reset();
                info!(broker = %core.target, "connected to the broker");
                live(&core, connection).await
            }
            Err(reason) => reason,
        };
        let news = core.state.send_if_modified(|state| {
            let now = BrokerState::Down { reason: reason.clone() };
            let news = *state != now;
            *state = now;
            news
        });
        if core.closed.is_cancelled() {
            break;
        }
        // Once per reason, not once per attempt.
        if news {
            warn!(broker = %core.target, reason, "the broker cannot be reached; it is tried again");
        }
        tokio::select! {
            () = core.closed.cancelled() => {}
            () = tokio::time::sleep(backoff.wait()) => {}
        }
    }
    core.state.send_replace(BrokerState::Down { reason: "it was closed".into() });
    core.ended.cancel();
}

/// One session, until it ends: why.
async fn live(core: &Core, connection: Connection) -> String {
    let session =
        Arc::new(Session { connection, publishers: Publishers::default(), ended: CancellationToken::new(), declared: Mutex::default() });
    // Listened to before it is looked at: what happens in between is seen once, at least.
    let events = session.connection.events_listener();
    let blocked = session.connection.status().blocked();
    core.state.send_replace(if blocked { BrokerState::Blocked { reason: "an alarm".into() } } else { BrokerState::Up });
    core.session.send_replace(Some(session.clone()));
    let reason = watch_over(core, &session.connection, events).await;
    core.session.send_replace(None);
    session.ended.cancel();
    // In good order where it still lives; whatever is unsettled goes back.
    let _ = timeout(core.options.request_timeout, session.connection.close(200, "closed".into())).await;
    reason
}

async fn watch_over(core: &Core, connection: &Connection, events: impl Stream<Item = Event>) -> String {
    let mut events = std::pin::pin!(events);
    let mut look = tokio::time::interval(LOOK);
    let mut last = String::from("the connection ended");
    while connection.status().connected() {
        let event = tokio::select! {
            () = core.closed.cancelled() => return "it was closed".into(),
            _ = look.tick() => continue,
            event = events.next() => event,
        };
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                warn!(broker = %core.target, reason, "the broker takes no publications");
                core.state.send_replace(BrokerState::Blocked { reason });
            }
            Some(Event::ConnectionUnblocked) => {
                info!(broker = %core.target, "the broker takes publications again");
                core.state.send_replace(BrokerState::Up);
            }
            // Of the connection, or of one channel, whose user is told too.
            Some(Event::Error(error)) => last = error.to_string(),
            Some(_) => {}
            None => break,
        }
    }
    last
}
