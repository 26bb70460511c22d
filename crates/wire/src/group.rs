//! The channel between the processes of a node that share a rank, and the member that leads them: a Unix socket, over which the
//! leader passes the slab on.
//!
//! The leader takes [`MemberRequest`]s from a [`GroupListener`]; another member calls [`attach`].

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use aws_lc_rs::digest;
use spdl_control::{
    client::group::MAX_MEMBERS,
    messages::{FromLeader, MemberAttach, Session, StartReason, ToLeader},
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
};
use tracing::warn;

use crate::{
    frame::{FrameError, FrameReader, FrameWriter},
    home::{ATTACH_TIMEOUT, ChannelError},
    local::{self, Allow, DescriptorReader, LocalChannelError, LocalListener},
    log_limit::{LOG_PERIOD, LogLimit},
    slab::Slab,
};

/// The most processes that are attaching at once.
const AT_ONCE: usize = 2 * MAX_MEMBERS as usize;
/// How long accepting pauses when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The digits of a socket's name: 64 bits of a hash.
const NAME_BYTES: usize = 8;

/// What tells the group of a rank from all others on a node.
#[derive(Clone, Copy, Debug)]
pub struct GroupName<'a> {
    /// The coordinators, as the members are told them.
    pub coordinators: &'a str,
    /// The job's name.
    pub job: &'a str,
    /// The run's name.
    pub run: &'a str,
    /// The rank, r in the specification of the order.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
}

impl GroupName<'_> {
    /// Returns the path of the socket on which the group's leader listens, in a folder of this user's.
    ///
    /// # Errors
    /// [`LocalChannelError`] if there can be no such folder.
    pub fn socket(&self) -> Result<PathBuf, LocalChannelError> {
        let Self { coordinators, job, run, rank, world } = self;
        let text = format!("{coordinators}\n{job}\n{run}\n{rank}\n{world}");
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        let name: String = hash.as_ref()[..NAME_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(local::group_folder()?.join(name))
    }
}

/// The leader's socket. Dropping it ends its task; members that are attached stay.
#[derive(Debug)]
pub struct GroupListener {
    arrived: mpsc::Receiver<MemberRequest>,
    _tasks: JoinSet<()>,
}

impl GroupListener {
    /// Listens at `path`, in place of whatever process listened there. Call it in a tokio runtime.
    pub fn start(path: &Path) -> Result<Self, LocalChannelError> {
        let listener = LocalListener::replace(path, Allow::default())?;
        let (requests, arrived) = mpsc::channel(AT_ONCE);
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, requests));
        Ok(Self { arrived, _tasks: tasks })
    }

    /// Returns the next process that asks to be a member. Nothing is lost when the future is dropped.
    pub async fn accept(&mut self) -> Option<MemberRequest> {
        self.arrived.recv().await
    }
}

async fn listen(listener: LocalListener, requests: mpsc::Sender<MemberRequest>) {
    let mut arriving = JoinSet::new();
    let failures = LogLimit::new(LOG_PERIOD);
    loop {
        while arriving.try_join_next().is_some() {}
        let admitted = match listener.accept().await {
            Ok(stream) => listener.admit(&stream).map(|_| stream),
            Err(error) => {
                if let Some(more) = failures.admit_text() {
                    warn!("cannot accept a member of the group: {error}{more}");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match admitted {
            Ok(stream) if arriving.len() < AT_ONCE => {
                let requests = requests.clone();
                arriving.spawn(async move {
                    if let Ok(Some(request)) = tokio::time::timeout(ATTACH_TIMEOUT, read_request(stream)).await {
                        // This fails only when the leader is gone.
                        let _ = requests.send(request).await;
                    }
                });
            }
            Ok(_) => {}
            Err(error) => {
                if let Some(more) = failures.admit_text() {
                    warn!("refused a member of the group: {error}{more}");
                }
            }
        }
    }
}

async fn read_request(stream: UnixStream) -> Option<MemberRequest> {
    let (read, write) = stream.into_split();
    let mut link = MemberLink { frames: FrameReader::new(read, Vec::new()), out: FrameWriter::new(write) };
    match link.frames.next::<ToLeader>().await {
        Ok(Some(ToLeader::Attach(attach))) => Some(MemberRequest { attach: *attach, link }),
        Ok(Some(other)) => {
            link.refuse(format!("the first message was {other:?}, not Attach"), false).await;
            None
        }
        Err(error) => {
            link.refuse(error.to_string(), false).await;
            None
        }
        Ok(None) => None,
    }
}

/// A process's request to be a member. If it is dropped without a reply, its channel closes.
#[derive(Debug)]
pub struct MemberRequest {
    /// What the process asks for.
    pub attach: MemberAttach,
    link: MemberLink,
}

impl MemberRequest {
    /// Accepts the process, and returns its channel.
    ///
    /// # Errors
    /// [`ChannelError`] if the process is gone.
    pub async fn accept(
        mut self,
        session: Box<Session>,
        reason: StartReason,
        client: String,
    ) -> Result<MemberLink, ChannelError> {
        self.link.send(&FromLeader::Attached { session, reason, client }).await?;
        Ok(self.link)
    }

    /// Refuses the process, with the reason.
    pub async fn refuse(self, message: String, is_retryable: bool) {
        self.link.refuse(message, is_retryable).await;
    }
}

/// The leader's side of the channel to another member.
#[derive(Debug)]
pub struct MemberLink {
    frames: FrameReader<OwnedReadHalf>,
    out: FrameWriter<OwnedWriteHalf>,
}

impl MemberLink {
    /// Sends a message. If the future is dropped, the message is sent with the next one.
    ///
    /// # Errors
    /// [`ChannelError`] if the member is gone.
    pub async fn send(&mut self, message: &FromLeader) -> Result<(), ChannelError> {
        self.out.send(message).await.map_err(ended)
    }

    /// Announces that batches come in this slab, and passes its descriptor on. The future must not be dropped.
    ///
    /// # Errors
    /// [`ChannelError`] if the member is gone.
    ///
    /// # Panics
    /// If the slab is private.
    pub async fn send_slab(&mut self, link: u64, slab: &Slab) -> Result<(), ChannelError> {
        let descriptor = slab.fd().expect("the slab of a group is shared");
        let message = FromLeader::Slab { link, slots: slab.slots(), slot_stride: slab.slot_stride() as u64 };
        self.out.flush().await.map_err(ended)?;
        local::send_with_fd(self.out.io_mut().as_ref(), &message, descriptor).await.map_err(ended)
    }

    /// Returns the next message; `None` if the member closed the channel or has ended. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError`] for a message that is none.
    pub async fn recv(&mut self) -> Result<Option<ToLeader>, ChannelError> {
        match self.frames.next().await {
            Ok(message) => Ok(message),
            Err(FrameError::Io(_) | FrameError::Cut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn refuse(mut self, message: String, is_retryable: bool) {
        let refused = FromLeader::Refused { message, is_retryable };
        let sending = async {
            if self.send(&refused).await.is_ok() {
                let _ = self.out.io_mut().shutdown().await;
            }
        };
        let _ = tokio::time::timeout(ATTACH_TIMEOUT, sending).await;
    }
}

/// Attaches to the leader that listens at `path`. Returns the session that the leader has joined, why that starts where it does, the
/// leader's process and the channel.
///
/// # Errors
/// [`ChannelError::Refused`] if the leader does not accept this process, [`ChannelError::Local`] if none listens.
pub async fn attach(
    path: &Path,
    attach: MemberAttach,
) -> Result<(Box<Session>, StartReason, String, LeaderLink), ChannelError> {
    let (member, timeout_ms) = (attach.member, ATTACH_TIMEOUT.as_millis() as u64);
    let attaching = async {
        let (read, write) = local::connect(path, &Allow::default()).await?.into_split();
        let mut link = LeaderLink { read, reader: DescriptorReader::default(), out: FrameWriter::new(write) };
        link.send(&ToLeader::Attach(Box::new(attach))).await?;
        match link.recv().await?.ok_or(ChannelError::Closed)? {
            FromLeader::Attached { session, reason, client } => Ok((session, reason, client, link)),
            FromLeader::Refused { message, is_retryable } => Err(ChannelError::Refused { message, is_retryable }),
            other => Err(ChannelError::protocol(format!("{other:?} arrived before Attached"))),
        }
    };
    tokio::time::timeout(ATTACH_TIMEOUT, attaching).await.unwrap_or_else(|_| {
        let message = format!("member 0 did not answer member {member} within {timeout_ms} ms");
        Err(ChannelError::Refused { message, is_retryable: true })
    })
}

/// A member's side of the channel to its leader.
#[derive(Debug)]
pub struct LeaderLink {
    read: OwnedReadHalf,
    reader: DescriptorReader,
    out: FrameWriter<OwnedWriteHalf>,
}

impl LeaderLink {
    /// Sends a message. If the future is dropped, the message is sent with the next one.
    ///
    /// # Errors
    /// [`ChannelError`] if the leader is gone.
    pub async fn send(&mut self, message: &ToLeader) -> Result<(), ChannelError> {
        self.out.send(message).await.map_err(ended)
    }

    /// Returns the next message; `None` if the leader closed the channel or has ended. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`ChannelError`] for a message that is none.
    pub async fn recv(&mut self) -> Result<Option<FromLeader>, ChannelError> {
        match self.reader.next(self.read.as_ref()).await {
            Ok(message) => Ok(message),
            Err(LocalChannelError::Frame(FrameError::Io(_) | FrameError::Cut { .. })) => Ok(None),
            Err(LocalChannelError::Frame(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Maps the slab that a [`FromLeader::Slab`] has announced, which was just received.
    ///
    /// # Errors
    /// [`ChannelError`] if it is not there, or not what was announced.
    pub fn take_slab(&mut self, slots: u32, slot_stride: u64) -> Result<Slab, ChannelError> {
        let descriptor = self.reader.take_descriptor();
        let descriptor = descriptor.ok_or_else(|| ChannelError::protocol("the slab arrived without a descriptor"))?;
        Ok(Slab::attach(descriptor, slots, slot_stride)?)
    }
}

fn ended(error: FrameError) -> ChannelError {
    match &error {
        FrameError::Io(io) if matches!(io.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            ChannelError::Closed
        }
        _ => error.into(),
    }
}
