//! The socket of a child: each message is a packet, and may carry a descriptor.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
};

use super::MAX_MESSAGE_BYTES;

/// A message, and the descriptor that came with it.
pub(crate) struct ReceivedMessage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fd: Option<OwnedFd>,
}

/// Sends a message, with a descriptor if there is one.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let fds = fd.map(|fd| [fd]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = &fds {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer has room for one descriptor");
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message. Its bytes are empty if the socket is closed.
pub(crate) fn receive(socket: impl AsFd) -> rustix::io::Result<ReceivedMessage> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let count = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    };
    bytes.truncate(count);
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(ReceivedMessage { bytes, fd })
}
