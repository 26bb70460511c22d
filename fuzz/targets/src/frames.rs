//! What a process answers that decodes videos, which a damaged one may have taken over.

use spdl_frames::rewritten_reply;

/// Checks that an answer is the same when it is written and read again.
pub(crate) fn reply(data: &[u8]) {
    let Some(written) = rewritten_reply(data) else { return };
    assert_eq!(rewritten_reply(&written).as_ref(), Some(&written));
}

/// Returns answers of all kinds.
pub(crate) fn reply_seeds() -> Vec<Vec<u8>> {
    let frame = |nth: u64, kind: [u8; 3], bits: u8| {
        let mut bytes = [nth, 4096 * nth].map(u64::to_le_bytes).as_flattened().to_vec();
        bytes.extend([160u32, 95].map(u32::to_le_bytes).as_flattened());
        bytes.extend(kind);
        bytes.push(bits);
        bytes.extend([1, 0, 1, 0, 1, 0, 2]);
        bytes
    };
    let frames = [frame(0, [0, 0, 0], 8), frame(1, [1, 1, 1], 10), frame(2, [2, 0, 0], 12)];
    let reply = |frames: &[Vec<u8>], next: &[u8]| {
        [b"F", &(frames.len() as u64).to_le_bytes()[..], &frames.concat(), next].concat()
    };
    let seeds = vec![
        b"Rlibavcodec 59.37.100".to_vec(),
        b"Nnowhere".to_vec(),
        b"Xno filter".to_vec(),
        reply(&frames, b"D"),
        reply(&frames[..1], b"G"),
        reply(&[], b"P"),
        reply(&[], b"O\0\0\x10\0\0\0\0\0"),
        reply(&frames[1..], b"E\x02Invalid data"),
    ];
    assert!(seeds.iter().all(|seed| rewritten_reply(seed).as_ref() == Some(seed)), "seeds are valid");
    seeds
}
