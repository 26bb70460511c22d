//! Tests of feeds with ids of tokens, in rows of any length.

use super::*;

/// The sample with an id that the vocabulary does not have.
pub(super) const BAD: u64 = 77;

/// Returns the ids of a sample: none of some, and thousands of others.
pub(super) fn ids(sample: u64) -> Vec<u16> {
    (0..(sample * sample * 397) % 5000 * u64::from(!sample.is_multiple_of(10)))
        .map(|place| ((sample * 31 + place * 7) % 1000) as u16)
        .collect()
}

/// Returns the file of a sample.
pub(super) fn file(sample: u64) -> Vec<u8> {
    let mut ids = ids(sample);
    if sample == BAD {
        ids[2] = 1000;
    }
    npy(&ids)
}

/// Returns the file of an array of ids.
pub(super) fn npy(ids: &[u16]) -> Vec<u8> {
    let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({},), }}\n", ids.len());
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let elements: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &elements].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_gets_the_same_ids_and_a_sample_with_a_wrong_one_is_replaced() {
    let column = "name = \"tokens\"\nfrom = \"txt\"\ndecode = \"tokens\"\nvocab = 1000";
    let fixture = FeedFixture::of_values(file, TWO_EPOCHS, column);
    let resources = resources(PLENTY, None);
    let (alone, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(alone.len() as u64, 2 * SAMPLES);
    for Seen { id, text, .. } in alone.values() {
        let expected: Vec<u8> = ids(*id).iter().flat_map(|id| i32::from(*id).to_le_bytes()).collect();
        assert!(*text == expected, "sample {id} has {} bytes", text.len());
    }
    assert!(alone.values().any(|seen| seen.text.is_empty()) && alone.values().any(|seen| seen.text.len() > 10_000));
    assert_eq!(alone.keys().filter(|(_, flags)| *flags == entry_flags::SUBSTITUTED).count(), 2);
    let reported = resources.decoding.bad.lock().unreported(100);
    let [bad] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(bad.sample.0, BAD);
    let cause = "field `txt` has id 1000 at place 2, from 0; `vocab` is 1000, so ids are from 0 to 999";
    assert!(bad.cause.contains(cause), "{}", bad.cause);
    let (shared, _) = run(&resources, &fixture.session(3), Position::START).await.unwrap();
    assert!(shared == alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_longer_than_the_column_allows_is_a_bad_sample() {
    let column = "name = \"tokens\"\nfrom = \"txt\"\ndecode = \"tokens\"\nmax_rows = 4000";
    let fixture =
        FeedFixture::of_values(file, "global_batch = 12\nbad_samples = \"mask\"\nmax_bad_fraction = 1.0", column);
    let (seen, _) = run(&resources(PLENTY, None), &fixture.session(2), Position::START).await.unwrap();
    assert_eq!(seen.len() as u64, SAMPLES);
    for ((_, flags), sample) in &seen {
        let is_long = ids(sample.id).len() > 4000;
        assert_eq!(*flags, if is_long { entry_flags::MASKED } else { 0 }, "{}", sample.id);
        assert_eq!(sample.text.is_empty(), is_long || ids(sample.id).is_empty());
    }
    assert!(seen.keys().any(|(_, flags)| *flags == entry_flags::MASKED));
}
