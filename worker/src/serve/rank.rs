//! Serves one rank, from its attach request to its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_accounting::{StageCounters, UnitGroup, UnitState};
use spdl_control::messages::{FromHome, ToHome};
use spdl_insight::Transport;
use spdl_wire::{
    home::{AttachRequest, ChannelError, HomeReceiver, HomeSender},
    spans,
};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::{Shutdown, comes, ranks::Ranks};
use crate::feed::{FeedEvent, FeedRequest, FeedView, RankFeed, Resources, SlabKind, SlotFreer};

/// Maximum number of unanswered questions of one client; no further message is read before one is answered.
const QUESTIONS: usize = 4;

/// Limit for sending the last message, which gives a client the reason why it is no longer served.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why the service of a rank ended.
#[derive(Debug)]
enum Ending {
    /// The client has left, in order or not.
    ClientLeft(Result<(), ChannelError>),
    /// The home ends the service with this last message.
    LastMessage(FromHome),
    /// The worker shuts down, and the client has not found another home in time.
    Disconnected,
}

/// Answers `request` and feeds the rank until the client leaves, the feed ends or fails, or the worker shuts down.
pub(super) async fn serve(
    request: AttachRequest,
    resources: Arc<Resources>,
    ranks: Arc<Ranks>,
    shutdown: watch::Receiver<Shutdown>,
) {
    let span = spans::rank(Some(request.session.id), &request.session.job.name, request.rank);
    attach_and_serve(request, resources, ranks, shutdown).instrument(span).await;
}

async fn attach_and_serve(
    request: AttachRequest,
    resources: Arc<Resources>,
    ranks: Arc<Ranks>,
    shutdown: watch::Receiver<Shutdown>,
) {
    let transport = request.transport();
    let (rank, client) = (request.rank, request.client.clone());
    let slab = if transport == Transport::Local { SlabKind::Shared } else { SlabKind::Private };
    let wanted =
        FeedRequest { session: (*request.session).clone(), rank, from: request.from, slots: request.slots, slab };
    let Some(permit) = ranks.permit() else {
        return request.refuse(format!("worker serves {} ranks, which is its limit", ranks.limit()), true).await;
    };
    let feed = match RankFeed::start(&resources, wanted) {
        Ok(feed) => feed,
        Err(error) => {
            tracing::warn!(client, %error, "refused a rank");
            return request.refuse(error.to_string(), error.is_retryable()).await;
        }
    };
    let (mut sender, receiver) = match request.attached(feed.slab()).await {
        Ok(halves) => halves,
        Err(error) => return tracing::debug!(client, %error, "the client left before it was attached"),
    };
    permit.serve(feed.view().clone(), transport);
    tracing::info!(client, ?transport, "attached");
    let link = (transport == Transport::Quic).then(|| RankLink::new(&resources.stages.send));
    match exchange(feed, &mut sender, link, receiver, shutdown).await {
        Ending::ClientLeft(Ok(()) | Err(ChannelError::Closed)) => tracing::info!(client, "client left"),
        Ending::ClientLeft(Err(error)) => tracing::info!(client, %error, "lost the client"),
        Ending::Disconnected => tracing::warn!(client, "disconnected a rank that found no other home"),
        Ending::LastMessage(last) => {
            if let FromHome::Fault { message, .. } = &last {
                tracing::error!(client, message, "rank cannot be fed any longer");
            }
            // Sending fails if the client is gone; the limit keeps a client that does not read from holding its permit.
            let _ = tokio::time::timeout(LAST_MESSAGE_TIMEOUT, sender.send(&last)).await;
        }
    }
    drop(permit);
    sender.close().await;
}

/// Sends and receives at once: a client that does not read is still heard, and a client that sends nothing is still
/// served.
async fn exchange(
    mut feed: RankFeed,
    sender: &mut HomeSender,
    link: Option<RankLink>,
    receiver: HomeReceiver,
    shutdown: watch::Receiver<Shutdown>,
) -> Ending {
    let (questions, asked) = mpsc::channel(QUESTIONS);
    let (freer, view) = (feed.freer(), feed.view().clone());
    tokio::select! {
        ending = send_messages(&mut feed, sender, link, asked, shutdown) => ending,
        ending = receive_messages(receiver, freer, view, questions) => Ending::ClientLeft(ending),
    }
}

/// The network to one client, as a unit of the stage `send`.
struct RankLink {
    stage: Arc<StageCounters>,
    unit: UnitGroup,
}

impl RankLink {
    fn new(stage: &Arc<StageCounters>) -> Self {
        Self { stage: stage.clone(), unit: stage.units().group(1, Instant::now()) }
    }

    /// Counts a batch of `bytes` that `sending` sends.
    async fn count<E>(&self, bytes: u64, sending: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let started = Instant::now();
        let sent = self.unit.run(sending, UnitState::Output).await;
        match &sent {
            Ok(()) => {
                self.stage.note_thread();
                self.stage.item(started.elapsed(), bytes);
            }
            Err(_) => self.stage.failure(),
        }
        sent
    }
}

async fn send_messages(
    feed: &mut RankFeed,
    sender: &mut HomeSender,
    link: Option<RankLink>,
    mut asked: mpsc::Receiver<FromHome>,
    mut shutdown: watch::Receiver<Shutdown>,
) -> Ending {
    let mut is_over = false;
    let mut stage = Shutdown::Draining;
    loop {
        let sent = tokio::select! {
            biased;
            () = comes(&mut shutdown, stage) => {
                if *shutdown.borrow() == Shutdown::Closing {
                    return Ending::Disconnected;
                }
                // The client is served until it has found another home.
                stage = Shutdown::Closing;
                sender.send(&FromHome::Leaving).await
            }
            Some(answer) = asked.recv() => sender.send(&answer).await,
            event = feed.next(), if !is_over => match event {
                Ok(FeedEvent::Filled { sequence, slot, used_bytes }) => {
                    let sending = sender.deliver(sequence, slot, used_bytes);
                    match &link {
                        Some(link) => link.count(used_bytes, sending).await,
                        None => sending.await,
                    }
                }
                Ok(FeedEvent::End { sequence, position }) => {
                    is_over = true;
                    sender.send(&FromHome::End { sequence, position }).await
                }
                Err(error) => {
                    let (message, is_retryable) = (error.to_string(), error.is_retryable());
                    return Ending::LastMessage(FromHome::Fault { message, is_retryable });
                }
            },
        };
        if let Err(error) = sent {
            return Ending::ClientLeft(Err(error));
        }
    }
}

async fn receive_messages(
    mut receiver: HomeReceiver,
    freer: SlotFreer,
    view: FeedView,
    questions: mpsc::Sender<FromHome>,
) -> Result<(), ChannelError> {
    while let Some(message) = receiver.recv().await? {
        match message {
            ToHome::Freed { slot, .. } => freer.note_released(slot),
            ToHome::Explain => {
                // The receiver lives as long as this task.
                let _ = questions.send(FromHome::Explained(view.stall())).await;
            }
            ToHome::Attach { .. } | ToHome::Join { .. } => unreachable!("the channel refuses a second attach"),
        }
    }
    Ok(())
}
