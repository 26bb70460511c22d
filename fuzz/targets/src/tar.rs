//! Tar shards: headers, long names, pax records, and the records that their members form.

use spdl_dataset::tar::{MAX_EXTENSION_BYTES, RecordReader, ScannedRecord, TAR_BLOCK_BYTES, TAR_END, append_member};

use crate::input::{FuzzInput, append_piece};

/// The place of the checksum in a header, and the byte that marks a header whose checksum is to be corrected.
const CHECKSUM: std::ops::Range<usize> = 148..156;
const WANTED: u8 = b'?';

/// Checks that a shard reads the same in chunks of any size, that its records lie within it, and that shards that we
/// write can be read.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    match input.byte() % 4 {
        0 => written(input),
        _ => scanned(input),
    }
}

fn scanned(mut input: FuzzInput<'_>) {
    let chunk_bytes = 1 + usize::from(input.byte()) * 7;
    let shard = with_checksums(input.0);
    let whole = scan(&shard, shard.len().max(1));
    assert_eq!(whole, scan(&shard, chunk_bytes), "chunks of {chunk_bytes} bytes");
    let (records, end) = whole;
    if end.is_err() {
        return;
    }
    let mut at = 0;
    for record in &records {
        assert!(record.start >= at && !record.key.is_empty() && !record.fields.is_empty(), "{record:?}");
        at = record.start;
        for field in &record.fields {
            let range = field.offset as usize..field.offset as usize + field.bytes as usize;
            assert!(field.offset >= at && range.end as u64 <= record.end, "{record:?}");
            let bytes = shard.get(range).expect("a field lies in its shard");
            assert_eq!(crc32c(bytes), field.crc32c, "{record:?}");
            assert!(field.content.as_ref().is_none_or(|content| content == bytes), "{record:?}");
            at = field.offset + u64::from(field.bytes);
        }
        assert!(record.end <= shard.len() as u64);
    }
}

type ScanResult = (Vec<ScannedRecord>, Result<u64, String>);

fn scan(shard: &[u8], chunk_bytes: usize) -> ScanResult {
    let mut reader = RecordReader::new("shard").keep("jpg", 64);
    let mut records = Vec::new();
    for chunk in shard.chunks(chunk_bytes) {
        if let Err(error) = reader.read(chunk, |record| records.push(record)) {
            return (records, Err(error.to_string()));
        }
    }
    match reader.finish() {
        Ok(end) => {
            records.extend(end.record);
            (records, Ok(end.bytes))
        }
        Err(error) => (records, Err(error.to_string())),
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 })
    }) ^ !0
}

/// Corrects the checksum of headers that are marked for it.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut shard = data.to_vec();
    for block in shard.chunks_exact_mut(TAR_BLOCK_BYTES).filter(|block| block[CHECKSUM.start] == WANTED) {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    shard
}

/// Checks that members with paths and contents from the input are read back as they were written.
fn written(mut input: FuzzInput<'_>) {
    let mut shard = Vec::new();
    let mut members: Vec<(String, Vec<u8>)> = Vec::new();
    while !input.is_empty() {
        let path = String::from_utf8_lossy(input.piece()).replace('\0', "");
        let content = input.piece().to_vec();
        // Each file has its own folder, so each is a separate record.
        let path = format!("{}/{path}.jpg", members.len());
        if path.len() as u64 > MAX_EXTENSION_BYTES - 64 {
            continue;
        }
        append_member(&mut shard, &path, &content);
        members.push((path, content));
    }
    shard.extend(TAR_END);
    let (records, end) = scan(&shard, 1000);
    assert_eq!(end, Ok(shard.len() as u64));
    let mut records = records.iter();
    for (path, content) in &members {
        // Hidden files and similar ones are not fields.
        let Some((key, name)) = spdl_dataset::tar::KeyEnd::FirstDot.split(path) else { continue };
        let record = records.next().expect("each is a record");
        assert_eq!((record.key.as_str(), record.fields[0].name.as_str()), (key, name.to_lowercase().as_str()));
        assert_eq!(record.fields[0].crc32c, crc32c(content));
    }
    assert!(records.next().is_none());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut shard = vec![1, 40];
    let long = "long/".repeat(60) + "name.jpg";
    for (path, content) in [("a/b.jpg", "jpg"), ("a/b.cls", "7"), ("ä.jpg", ""), (&long, "x"), ("c.json", "{}")] {
        let start = shard.len() - 2;
        let mut tar = Vec::new();
        append_member(&mut tar, path, content.as_bytes());
        // Every header of the seed is marked for a new checksum, so that a changed header is read too.
        tar.chunks_exact_mut(TAR_BLOCK_BYTES)
            .filter(|block| &block[257..262] == b"ustar")
            .for_each(|block| block[CHECKSUM].fill(WANTED));
        assert_eq!(start % TAR_BLOCK_BYTES, 0);
        shard.extend(tar);
    }
    shard.extend(TAR_END);
    let mut members = vec![0];
    for piece in ["a", "jpg", "b/c", "", "__x__/d", "e"] {
        append_piece(&mut members, piece.as_bytes());
    }
    vec![shard, members, gnu()]
}

/// Returns a long name as GNU tar writes it.
fn gnu() -> Vec<u8> {
    let mut tar = vec![2, 3];
    let name = "n".repeat(120) + ".jpg";
    for (kind, name, content) in [(b'L', "././@LongLink", name.as_bytes()), (b'0', "short", b"content")] {
        let mut header = [0; TAR_BLOCK_BYTES];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[CHECKSUM].fill(WANTED);
        header[156] = kind;
        tar.extend(header);
        tar.extend(content);
        tar.resize(2 + (tar.len() - 2).next_multiple_of(TAR_BLOCK_BYTES), 0);
    }
    tar.extend(TAR_END);
    tar
}
