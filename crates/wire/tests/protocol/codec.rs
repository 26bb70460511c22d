//! Tests of the codec: every message survives the wire, and other bytes are refused without harm.

use std::fmt::Debug;

use crate::arbitrary;
use proptest::{prelude::*, test_runner::TestCaseResult};
use spdl_control::{help::HelpReply, messages::*, peers::BlockReply};
use spdl_insight::Stall;
use spdl_wire::{
    codec::{self, CodecError},
    frame::{self, FrameError, FrameReader, FrameWriter, HEAD_BYTES, Message},
};

fn framed<M: Message>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append_frame(message, &mut bytes).unwrap();
    bytes
}

/// Tests a round trip; then truncation at every length and one changed byte at every place, which must never panic.
fn survives<M: Message + PartialEq + Debug>(message: &M, flip: u8) -> TestCaseResult {
    let bytes = framed(message);
    let mut whole = bytes.clone();
    prop_assert_eq!(&frame::take_frame::<M>(&mut whole).unwrap().unwrap(), message);
    prop_assert!(whole.is_empty());
    let body = &bytes[HEAD_BYTES..];
    for end in 0..body.len() {
        prop_assert!(codec::decode::<M>(&body[..end]).is_err(), "cut after {} of {} bytes", end, body.len());
    }
    for at in 0..body.len() {
        let mut changed = body.to_vec();
        changed[at] ^= flip;
        let _ = codec::decode::<M>(&changed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn requests_survive(message in arbitrary::message::<ToCoordinator>(), flip in 1..=255_u8) {
        survives(&message, flip)?;
    }

    #[test]
    fn replies_survive(message in arbitrary::message::<FromCoordinator>(), flip in 1..=255_u8) {
        survives(&message, flip)?;
    }

    #[test]
    fn messages_between_workers_survive(
        request in arbitrary::message::<PeerRequest>(),
        reply in arbitrary::message::<BlockReply>(),
        help in arbitrary::message::<HelpReply>(),
        flip in 1..=255_u8,
    ) {
        survives(&request, flip)?;
        survives(&reply, flip)?;
        survives(&help, flip)?;
    }

    #[test]
    fn messages_to_homes_survive(message in arbitrary::message::<ToHome>(), flip in 1..=255_u8) {
        survives(&message, flip)?;
    }

    #[test]
    fn messages_of_homes_survive(message in arbitrary::message::<FromHome>(), flip in 1..=255_u8) {
        survives(&message, flip)?;
    }

    #[test]
    fn noise_is_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = codec::decode::<ToCoordinator>(&bytes);
        let _ = codec::decode::<FromCoordinator>(&bytes);
        let _ = codec::decode::<ToHome>(&bytes);
        let _ = codec::decode::<FromHome>(&bytes);
    }
}

#[test]
fn a_stage_travels_as_its_name_even_if_only_the_sender_knows_it() {
    for name in ["fetch", "hand-over", "a stage of a newer worker"] {
        let mut as_text = Vec::new();
        codec::encode(&("w", name, "x", 5_u64), &mut as_text).unwrap();
        let stall: Stall = codec::decode(&as_text).unwrap();
        assert_eq!(stall.stage.name(), name);
        let mut bytes = Vec::new();
        codec::encode(&stall, &mut bytes).unwrap();
        assert_eq!(bytes, as_text);
    }
}

#[test]
fn left_over_bytes_are_refused() {
    let mut bytes = Vec::new();
    codec::encode(&ToHome::Explain, &mut bytes).unwrap();
    bytes.push(0);
    assert!(matches!(codec::decode::<ToHome>(&bytes), Err(CodecError::LeftOver { used: 1, actual: 2 })));
}

#[test]
fn a_list_that_claims_more_than_is_there_is_refused() {
    // RankLeave, DescribeJob and Status differ in their first byte; 7 is DescribeJob, whose string claims 2^60 bytes.
    let mut bytes = vec![7, 253];
    bytes.extend_from_slice(&(1_u64 << 60).to_le_bytes());
    assert!(codec::decode::<ToCoordinator>(&bytes).is_err());
    let mut bytes = vec![7, 252];
    bytes.extend_from_slice(&(15_u32 << 20).to_le_bytes());
    assert!(codec::decode::<ToCoordinator>(&bytes).is_err());
}

#[test]
fn invalid_heads_are_errors_that_name_the_field() {
    let good = framed(&ToHome::Explain);
    let with = |at: usize, patch: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        frame::take_frame::<ToHome>(&mut bytes).unwrap_err()
    };
    let version = with(2, &99_u16.to_le_bytes());
    assert!(matches!(version, FrameError::Version { theirs: 99, ours: PROTOCOL_VERSION }));
    assert!(version.to_string().contains("version 99") && version.to_string().contains("install the same release"));
    assert!(matches!(with(0, b"GE"), FrameError::NotOurs { head: [b'G', b'E'] }));
    let long = with(4, &u32::MAX.to_le_bytes());
    assert!(
        matches!(long, FrameError::TooLong { bytes, most, .. } if bytes == u64::from(u32::MAX) && most == ToHome::MAX_BYTES)
    );
    assert!(!long.is_retryable());
}

#[test]
fn a_message_longer_than_it_may_be_is_not_sent_and_leaves_the_queue_clean() {
    let mut bytes = b"queued".to_vec();
    let fault = FromHome::Fault { message: "x".repeat(FromHome::MAX_BYTES), is_retryable: false };
    assert!(matches!(frame::append_frame(&fault, &mut bytes), Err(FrameError::TooLong { .. })));
    assert_eq!(bytes, b"queued");
}

#[tokio::test]
async fn frames_follow_each_other_through_a_narrow_pipe() {
    let (near, far) = tokio::io::duplex(3);
    let sent: Vec<ToHome> =
        (0..50).map(|slot| ToHome::Freed { slot, is_locked: slot % 2 == 1 }).chain([ToHome::Explain]).collect();
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        let mut writer = FrameWriter::new(near);
        for message in &sent {
            writer.send(message).await.unwrap();
        }
    });
    let mut reader = FrameReader::new(far, Vec::new());
    let mut got = Vec::new();
    while let Some(message) = reader.next::<ToHome>().await.unwrap() {
        got.push(message);
    }
    writing.await.unwrap();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn a_send_that_was_dropped_half_way_does_not_tear_the_frame() {
    let (near, far) = tokio::io::duplex(4);
    let mut writer = FrameWriter::new(near);
    let stuck = FromHome::Fault { message: "long enough to fill the pipe".into(), is_retryable: true };
    tokio::select! {
        biased;
        _ = writer.send(&stuck) => panic!("the pipe is narrower than the frame"),
        () = std::future::ready(()) => {}
    }
    let writing = tokio::spawn(async move { writer.send(&FromHome::Leaving).await.unwrap() });
    let mut reader = FrameReader::new(far, Vec::new());
    assert_eq!(reader.next::<FromHome>().await.unwrap(), Some(stuck));
    assert_eq!(reader.next::<FromHome>().await.unwrap(), Some(FromHome::Leaving));
    writing.await.unwrap();
}

#[tokio::test]
async fn a_stream_cut_inside_a_frame_is_distinguished_from_one_that_ended() {
    let bytes = framed(&ToHome::Freed { slot: 3, is_locked: false });
    assert!(frame::read_frame::<ToHome>(&mut &bytes[..0]).await.unwrap().is_none());
    for end in 1..bytes.len() {
        let error = frame::read_frame::<ToHome>(&mut &bytes[..end]).await.unwrap_err();
        assert!(matches!(error, FrameError::Cut { .. }) && error.is_retryable());
        let mut reader = FrameReader::new(&bytes[..end], Vec::new());
        assert!(matches!(reader.next::<ToHome>().await, Err(FrameError::Cut { .. })));
    }
    let mut two = [bytes.clone(), b"rest".to_vec()].concat();
    let mut rest = two.as_mut_slice() as &[u8];
    assert_eq!(
        frame::read_frame::<ToHome>(&mut rest).await.unwrap(),
        Some(ToHome::Freed { slot: 3, is_locked: false })
    );
    assert_eq!(rest, b"rest", "not a byte more than the frame is read");
}
