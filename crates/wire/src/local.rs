//! The local channel: a Unix socket that checks its peer's credentials and passes the slab's descriptor.

use std::{
    collections::VecDeque,
    fs,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::FlockOperation,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags,
    },
};
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
};

use crate::frame::{self, FrameError, Message};

/// The longest path of a Unix socket that the kernel accepts, without the final zero.
pub const MAX_PATH_BYTES: usize = 107;
/// The number of attempts to lock a socket's folder, and the pause between them. A worker that starts holds the lock
/// for milliseconds.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);
/// The most bytes of one read.
const READ_BYTES: usize = 4 << 10;
/// The most descriptors that come before their messages are read.
const MAX_DESCRIPTORS: usize = 8;

/// A local channel cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum LocalChannelError {
    #[error("socket `{path}` has a path of {bytes} bytes, more than the {MAX_PATH_BYTES} that the kernel takes")]
    PathTooLong { path: PathBuf, bytes: usize },
    #[error("socket `{path}` is served by another process: stop it, or choose another path")]
    InUse { path: PathBuf },
    #[error("`{path}` is there and is not a socket: choose another path")]
    NotASocket { path: PathBuf },
    #[error("socket `{path}`: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("process {pid} of user {uid} may not use socket `{path}`: add the user to those allowed")]
    Denied { path: PathBuf, pid: i32, uid: u32 },
    #[error("socket `{path}` is served by user {uid}, which is neither root nor the user of this process")]
    Untrusted { path: PathBuf, uid: u32 },
    #[error(
        "folder `{path}` is another user's, a link, or open to others: remove it, or set XDG_RUNTIME_DIR to a folder of this user"
    )]
    NotOurs { path: PathBuf },
    #[error("peer passed more descriptors than messages have")]
    TooManyDescriptors,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl LocalChannelError {
    /// Returns whether the same may succeed later, or elsewhere.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Frame(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// The users that are accepted as peers, beside our own and root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    uids: Vec<u32>,
}

impl Allow {
    /// Also accepts these users.
    #[must_use]
    pub fn uids(uids: impl IntoIterator<Item = u32>) -> Self {
        Self { uids: uids.into_iter().collect() }
    }

    fn contains(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw() || self.uids.contains(&uid)
    }

    /// Returns the mode of the socket's folder: allowed users can open the socket in it, and no other user can list or
    /// search it.
    fn folder_mode(&self) -> u32 {
        if self.uids.is_empty() { 0o700 } else { 0o711 }
    }

    /// Returns the socket's mode. If other users are allowed, the file is open to all, and only the credentials decide.
    fn socket_mode(&self) -> u32 {
        if self.uids.is_empty() { 0o600 } else { 0o666 }
    }
}

/// The identity of the peer, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The process, or 0 if it is not visible from here.
    pub pid: i32,
    /// The user.
    pub uid: u32,
}

/// A listening Unix socket. Dropping it removes its file; the file that a killed process left is replaced.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our file, so that another process's file is never removed.
    file: (u64, u64),
    allow: Allow,
}

impl LocalListener {
    /// Listens at `path`, and makes its folder if there is none. Call it in a tokio runtime.
    ///
    /// Returns [`LocalChannelError::InUse`] if a live process already listens there, and other errors.
    pub fn bind(path: &Path, allow: Allow) -> Result<Self, LocalChannelError> {
        Self::bind_after(path, allow, remove_stale)
    }

    /// Listens at `path` as [`bind`](Self::bind) does, also if another process listens there: nobody reaches that one any more.
    pub fn replace(path: &Path, allow: Allow) -> Result<Self, LocalChannelError> {
        Self::bind_after(path, allow, remove_socket)
    }

    fn bind_after(
        path: &Path,
        allow: Allow,
        make_room: fn(&Path) -> Result<(), LocalChannelError>,
    ) -> Result<Self, LocalChannelError> {
        check_path(path)?;
        let io = |source| LocalChannelError::Io { path: path.to_owned(), source };
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        fs::DirBuilder::new().recursive(true).mode(allow.folder_mode()).create(dir).map_err(io)?;
        let _lock = lock(dir).map_err(io)?;
        make_room(path)?;
        let listener = UnixListener::bind(path).map_err(io)?;
        fs::set_permissions(path, fs::Permissions::from_mode(allow.socket_mode())).map_err(io)?;
        let file = fs::symlink_metadata(path).map_err(io)?;
        Ok(Self { listener, path: path.to_owned(), file: (file.dev(), file.ino()), allow })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection. Check it with [`LocalListener::admit`].
    ///
    /// # Errors
    /// [`LocalChannelError::Io`].
    pub async fn accept(&self) -> Result<UnixStream, LocalChannelError> {
        let (stream, _) = self.listener.accept().await.map_err(|source| self.io(source))?;
        Ok(stream)
    }

    /// Checks that the peer is allowed.
    ///
    /// # Errors
    /// [`LocalChannelError::Denied`].
    pub fn admit(&self, stream: &UnixStream) -> Result<Credentials, LocalChannelError> {
        let peer = credentials(stream).map_err(|source| self.io(source))?;
        if !self.allow.contains(peer.uid) {
            return Err(LocalChannelError::Denied { path: self.path.clone(), pid: peer.pid, uid: peer.uid });
        }
        Ok(peer)
    }

    fn io(&self, source: io::Error) -> LocalChannelError {
        LocalChannelError::Io { path: self.path.clone(), source }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns a folder for the sockets of this user's workers. It belongs to this user, so that no other user can block it
/// or replace a socket in it. It is in `XDG_RUNTIME_DIR` if that is set, otherwise in the folder of temporary files.
///
/// # Errors
/// [`LocalChannelError::Io`].
pub fn private_folder(allow: &Allow) -> Result<PathBuf, LocalChannelError> {
    let uid = rustix::process::geteuid().as_raw();
    let usual = folder_of_sockets("spdl", runtime_folder().filter(|_| allow.uids.is_empty()));
    if make_own_folder(&usual, allow.folder_mode())? {
        return Ok(usual);
    }
    let make = |path: &Path| fs::DirBuilder::new().mode(allow.folder_mode()).create(path);
    // Another user made a folder of this name: take a name that no other user can predict.
    let number = std::process::id();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let other = usual.with_file_name(format!("spdl-{uid}-{number}-{now:x}"));
    tracing::warn!("`{}` is not this user's own folder; sockets are in `{}`", usual.display(), other.display());
    make(&other).map_err(|source| LocalChannelError::Io { path: other.clone(), source })?;
    Ok(other)
}

/// Returns the folder for the sockets of this user's groups, whose members all have to find it. Like [`private_folder`], it is in
/// `XDG_RUNTIME_DIR` if that is set, otherwise in the folder of temporary files.
///
/// # Errors
/// [`LocalChannelError::NotOurs`] if another user has made it; [`LocalChannelError::Io`].
pub fn group_folder() -> Result<PathBuf, LocalChannelError> {
    let path = folder_of_sockets("spdl-groups", runtime_folder());
    if make_own_folder(&path, Allow::default().folder_mode())? {
        Ok(path)
    } else {
        Err(LocalChannelError::NotOurs { path })
    }
}

fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// Returns the folder of this name in `runtime`, or that of this user in the folder of temporary files.
fn folder_of_sockets(name: &str, runtime: Option<PathBuf>) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    runtime.map_or_else(|| std::env::temp_dir().join(format!("{name}-{uid}")), |runtime| runtime.join(name))
}

/// Makes a folder of this user's, or takes what is there. Returns false if that is a symbolic link, another user's, or one
/// that others can write to.
fn make_own_folder(path: &Path, mode: u32) -> Result<bool, LocalChannelError> {
    let io = |source| LocalChannelError::Io { path: path.to_owned(), source };
    match fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(io(source)),
    }
    let uid = rustix::process::geteuid().as_raw();
    let there = fs::symlink_metadata(path)
        .ok()
        .filter(|facts| facts.is_dir() && facts.uid() == uid && facts.mode() & 0o022 == 0);
    if let Some(facts) = &there {
        // A worker that other users may use has its socket here, too. The modes of the sockets say who may open which.
        let mode = mode | facts.mode() & 0o011;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    Ok(there.is_some())
}

/// Locks a folder, so that two processes that start at once do not replace each other's socket. The lock is on the
/// folder itself, so no file is left behind. A process that holds the lock for longer is not a starting worker and must
/// not block one: any user can lock a folder that they can read.
fn lock(dir: &Path) -> io::Result<fs::File> {
    let folder = fs::File::open(dir)?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            done => return done.map(|()| folder).map_err(Into::into),
        }
    }
    tracing::warn!("another process keeps `{}` locked; going on: keep sockets in a folder of your own", dir.display());
    Ok(folder)
}

fn check_path(path: &Path) -> Result<(), LocalChannelError> {
    let bytes = path.as_os_str().len();
    if bytes > MAX_PATH_BYTES {
        return Err(LocalChannelError::PathTooLong { path: path.to_owned(), bytes });
    }
    Ok(())
}

/// Returns whether there is a socket at `path`; an error if there is another file.
fn has_socket(path: &Path) -> Result<bool, LocalChannelError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(LocalChannelError::Io { path: path.to_owned(), source }),
        Ok(file) if !file.file_type().is_socket() => Err(LocalChannelError::NotASocket { path: path.to_owned() }),
        Ok(_) => Ok(true),
    }
}

/// Removes a socket, whoever listens on it.
fn remove_socket(path: &Path) -> Result<(), LocalChannelError> {
    if !has_socket(path)? {
        return Ok(());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LocalChannelError::Io { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Removes the socket that a killed process left, on which no process listens.
fn remove_stale(path: &Path) -> Result<(), LocalChannelError> {
    let io = |source| LocalChannelError::Io { path: path.to_owned(), source };
    if !has_socket(path)? {
        return Ok(());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(io),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A live process whose queue is full counts as listening.
        Ok(_) => Err(LocalChannelError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(LocalChannelError::InUse { path: path.to_owned() })
        }
        Err(error) => Err(io(error)),
    }
}

fn credentials(stream: &UnixStream) -> io::Result<Credentials> {
    let peer = stream.peer_cred()?;
    Ok(Credentials { pid: peer.pid().unwrap_or(0), uid: peer.uid() })
}

/// Connects to a home's socket, and checks that it is served by a trusted user: our own, root, or one of `allow`; root
/// trusts every user.
pub async fn connect(path: &Path, allow: &Allow) -> Result<UnixStream, LocalChannelError> {
    check_path(path)?;
    let io = |source| LocalChannelError::Io { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).await.map_err(io)?;
    let uid = credentials(&stream).map_err(io)?.uid;
    if !allow.contains(uid) && !rustix::process::geteuid().is_root() {
        return Err(LocalChannelError::Untrusted { path: path.to_owned(), uid });
    }
    Ok(stream)
}

/// Sends a message with a descriptor.
pub async fn send_with_fd<M: Message>(stream: &UnixStream, message: &M, fd: BorrowedFd<'_>) -> Result<(), FrameError> {
    let mut bytes = Vec::new();
    frame::append_frame(message, &mut bytes)?;
    let mut sent = stream
        .async_io(Interest::WRITABLE, || {
            let fds = [fd];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "the buffer has room for one descriptor");
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(rustix::net::sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, flags)?)
        })
        .await
        .map_err(FrameError::Io)?;
    // The descriptor was sent with the first byte.
    while sent < bytes.len() {
        stream.writable().await.map_err(FrameError::Io)?;
        match stream.try_write(&bytes[sent..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(())
}

/// Receives messages and the descriptors that come with some of them.
#[derive(Debug, Default)]
pub struct DescriptorReader {
    bytes: Vec<u8>,
    /// Descriptors that no message has taken yet. Each comes with the first byte of its message, and messages are read in order.
    descriptors: VecDeque<OwnedFd>,
}

impl DescriptorReader {
    /// Returns the next message; `None` if the stream ends between two messages. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`LocalChannelError::Frame`], [`LocalChannelError::TooManyDescriptors`].
    pub async fn next<M: Message>(&mut self, stream: &UnixStream) -> Result<Option<M>, LocalChannelError> {
        loop {
            if let Some(message) = frame::take_frame(&mut self.bytes)? {
                return Ok(Some(message));
            }
            let read = stream.async_io(Interest::READABLE, || receive_some(stream, &mut self.bytes)).await;
            let (count, fds) = read.map_err(FrameError::Io)?;
            for fd in fds {
                match fd {
                    Some(fd) if self.descriptors.len() < MAX_DESCRIPTORS => self.descriptors.push_back(fd),
                    _ => return Err(LocalChannelError::TooManyDescriptors),
                }
            }
            if count == 0 {
                return if self.bytes.is_empty() { Ok(None) } else { Err(FrameError::Cut { message: M::NAME }.into()) };
            }
        }
    }

    /// Returns the descriptor of the message that was read last, if it is one that has one.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

/// Receives a message, and the descriptor that came with it if there was one. Bytes that follow the message are left in
/// `bytes`.
///
/// # Errors
/// [`LocalChannelError::Frame`], [`LocalChannelError::TooManyDescriptors`].
pub async fn receive_with_fd<M: Message>(
    stream: &UnixStream,
    bytes: &mut Vec<u8>,
) -> Result<(M, Option<OwnedFd>), LocalChannelError> {
    let mut reader = DescriptorReader { bytes: std::mem::take(bytes), ..DescriptorReader::default() };
    let message = reader.next(stream).await?.ok_or(FrameError::Cut { message: M::NAME })?;
    let descriptor = reader.take_descriptor();
    if !reader.descriptors.is_empty() {
        return Err(LocalChannelError::TooManyDescriptors);
    }
    *bytes = reader.bytes;
    Ok((message, descriptor))
}

/// Calls `recvmsg` once. Returns the number of bytes and the descriptors; `None` stands for descriptors that the kernel
/// cut off.
fn receive_some(stream: &UnixStream, bytes: &mut Vec<u8>) -> io::Result<(usize, Vec<Option<OwnedFd>>)> {
    let mut buffer = [0; READ_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
    let mut fds: Vec<Option<OwnedFd>> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed.map(Some));
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        fds.push(None);
    }
    bytes.extend_from_slice(&buffer[..received.bytes]);
    Ok((received.bytes, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_stays_open_to_the_users_of_another_worker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spdl");
        for (allow, expected) in [(Allow::default(), 0o700), (Allow::uids([7]), 0o711), (Allow::default(), 0o711)] {
            assert!(make_own_folder(&path, allow.folder_mode()).unwrap());
            assert_eq!(mode(&path), expected);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_own_folder(&path, 0o700).unwrap());
        assert_eq!(mode(&path), 0o711, "no other user lists it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o720)).unwrap();
        assert!(!make_own_folder(&path, 0o700).unwrap(), "others can write to it");
    }
}
