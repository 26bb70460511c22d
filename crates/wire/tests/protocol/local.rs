//! Tests of passing descriptors over a Unix socket.

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use spdl_control::messages::FromHome;
use spdl_wire::{
    frame,
    local::{self, LocalChannelError},
    slab::{PAGE_BYTES, Slab},
};
use tokio::net::UnixStream;

const ATTACHED: FromHome = FromHome::Attached { slots: 1, slot_stride: PAGE_BYTES as u64 };

fn framed() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append_frame(&ATTACHED, &mut bytes).unwrap();
    bytes
}

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

#[tokio::test]
async fn a_descriptor_comes_with_its_message_closed_on_exec_and_what_follows_stays() {
    let (near, far) = UnixStream::pair().unwrap();
    let slab = Slab::shared(1, 4096).unwrap();
    local::send_with_fd(&near, &ATTACHED, slab.fd().unwrap()).await.unwrap();
    send(&near, b"rest", &[]);
    let mut bytes = Vec::new();
    let (message, fd) = local::receive_with_fd::<FromHome>(&far, &mut bytes).await.unwrap();
    assert_eq!(message, ATTACHED);
    let fd = fd.unwrap();
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    Slab::attach(fd, 1, PAGE_BYTES as u64).unwrap();
    while bytes.len() < 4 {
        far.readable().await.unwrap();
        let _ = far.try_read_buf(&mut bytes);
    }
    assert_eq!(bytes, b"rest");
}

#[tokio::test]
async fn a_message_that_comes_byte_by_byte_keeps_its_descriptor() {
    let (near, far) = UnixStream::pair().unwrap();
    let slab = Slab::shared(1, 4096).unwrap();
    let receiving = tokio::spawn(async move { local::receive_with_fd::<FromHome>(&far, &mut Vec::new()).await });
    for (at, byte) in framed().into_iter().enumerate() {
        let fds = [slab.fd().unwrap()];
        send(&near, &[byte], if at == 0 { &fds } else { &[] });
        tokio::task::yield_now().await;
    }
    assert!(receiving.await.unwrap().unwrap().1.is_some());
}

#[tokio::test]
async fn more_than_one_descriptor_is_refused_and_none_is_kept() {
    let slab = Slab::shared(1, 4096).unwrap();
    let file = tempfile::tempfile().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    send(&near, &framed(), &[slab.fd().unwrap(), file.as_fd(), file.as_fd()]);
    let error = local::receive_with_fd::<FromHome>(&far, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, LocalChannelError::TooManyDescriptors), "in one message: {error:?}");
    let (near, far) = UnixStream::pair().unwrap();
    let bytes = framed();
    send(&near, &bytes[..3], &[slab.fd().unwrap()]);
    send(&near, &bytes[3..], &[file.as_fd()]);
    let error = local::receive_with_fd::<FromHome>(&far, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, LocalChannelError::TooManyDescriptors), "in two: {error:?}");
}

#[tokio::test]
async fn a_socket_that_closes_inside_the_message_is_cut() {
    let (near, far) = UnixStream::pair().unwrap();
    send(&near, &framed()[..5], &[]);
    drop(near);
    let error = local::receive_with_fd::<FromHome>(&far, &mut Vec::new()).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("ended inside"), "{error}");
}
