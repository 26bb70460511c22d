//! Tests of fields that are compressed with gzip: what they become is bounded by their column and by the memory for decoding.

use std::{
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use flate2::{Compression, write::GzEncoder};

use super::*;

const MIB: usize = 1 << 20;
const TEXT: &str = "name = \"text\"\nfrom = \"txt.gz\"\ndecode = \"bytes\"\nmax_bytes = 67108864";
const NUMBER: &str = "name = \"number\"\nfrom = \"json.gz\"\ndecode = \"json\"\npath = \"a\"";

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().into()
}

/// Decodes the first column, which is ragged, with so much memory for decoding.
fn text(column: &str, memory_bytes: usize, file: &Bytes) -> Result<Bytes, String> {
    let decoder = Decoder::new(&job(&[column]), CLASSES).unwrap().with_memory_bytes(memory_bytes as u64);
    let mut value = Bytes::new();
    let field = |name: &str| (name == "txt.gz").then(|| file.clone().into());
    let decoded = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut value)]);
    decoded.map(|()| value).map_err(|cause| cause.to_string())
}

#[test]
fn a_field_that_its_column_cannot_take_is_refused_without_memory_for_it() {
    let file = gzip(&vec![b'x'; 50 * MIB]);
    assert!(file.len() < MIB);
    let column = TEXT.replace("67108864", "1000");
    let error = "column `text`: field `txt.gz` is 52428800 bytes; `max_bytes` is 1000";
    assert_eq!(text(&column, MIB, &file).unwrap_err(), error);
}

#[test]
fn a_large_field_takes_memory_for_decoding_and_is_refused_where_it_never_fits() {
    let content = vec![b'x'; 3 * MIB];
    let file = gzip(&content);
    let error = text(TEXT, 2 * MIB, &file).unwrap_err();
    assert!(
        error.starts_with("column `text`: field `txt.gz` becomes 3145728 bytes, more than there is memory for"),
        "{error}"
    );
    assert_eq!(text(TEXT, 4 * MIB, &file).unwrap(), content);
    let small = vec![b'x'; MIB];
    assert_eq!(text(TEXT, 1, &gzip(&small)).unwrap(), small, "a small one takes none");
}

#[test]
fn large_fields_of_samples_that_are_decoded_at_once_share_the_memory() {
    let most = Arc::new(AtomicU64::new(0));
    let limits = DecodeLimits { max_bytes: 5 << 20, own_bytes: 0, kept_bytes: 0 };
    let document = format!("{{\"a\": 7{}}}", " ".repeat(2 * MIB));
    let file = gzip(document.as_bytes());
    for picture in [None, Some(image_column("{ resize = [8, 8] }", ""))] {
        most.store(0, SeqCst);
        let columns: Vec<&str> = [NUMBER].into_iter().chain(picture.as_deref()).collect();
        let decoder = Decoder::new(&job(&columns), CLASSES).unwrap();
        let seen = most.clone();
        let memory = DecodeMemory::new(limits, Box::new(move |bytes| _ = seen.fetch_max(bytes, SeqCst)));
        let decoder = &decoder.with_memory(Arc::new(memory));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let (mut number, mut pixels) = ([0; 8], [0; 8 * 8 * 3]);
                    let mut targets = vec![FieldTarget::Fixed(&mut number)];
                    if picture.is_some() {
                        targets.push(FieldTarget::Fixed(&mut pixels));
                    }
                    let field = |name: &str| match name {
                        "json.gz" => Some(file.clone().into()),
                        "jpg" => Some(Bytes::from_static(CAT).into()),
                        _ => None,
                    };
                    decoder.decode_sample(key(0), &field, &mut targets).unwrap();
                    assert_eq!(f64::from_le_bytes(number), 7.0);
                });
            }
        });
        // Two documents at once, or nothing else where pictures are decoded, too.
        let used = most.load(SeqCst);
        assert!((2 << 20..=5 << 20).contains(&used), "{used}");
    }
}
