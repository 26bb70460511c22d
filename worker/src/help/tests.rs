use std::{sync::atomic::AtomicUsize, time::Duration};

use spdl_control::help::{HelperList, StoredSample};
use spdl_job::{BytesColumn, Column, ColumnKind, ImageColumn, ImageOp, IntColumn, JobFile};
use spdl_order::DatasetFacts;
use spdl_shard::format::FieldValue;
use spdl_store::blocking;
use spdl_types::{BatchId, DType, Position, SampleId, SessionId, WorkerId};

use super::{serve::HelpedJob, *};
use crate::{
    budget::Budget,
    decode::{Decoder, FieldTarget, SampleKey},
    feed::{
        Resources,
        tests::fixture::{FeedFixture, resources, run},
    },
};

const JOB: Fingerprint = Fingerprint(7);

/// Answers nothing.
#[derive(Debug)]
struct Silent;

impl AskHelper for Silent {
    fn keep(&self, _helpers: &[PeerAddress]) {}

    fn ask<'a>(
        &'a self,
        _helper: PeerAddress,
        _job: &'a LentJob,
        _request: DecodeRequest,
        _bytes: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<HelpAnswer, QuicError>> {
        Box::pin(std::future::pending())
    }
}

/// What a helper does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Decodes,
    /// Leaves out every other sample.
    DecodesHalf,
    IsBusy,
    IsUnable,
    BreaksOff,
    Hangs,
}

/// Decodes samples in this process, with resources of its own, and behaves in one way after the other.
#[derive(Debug)]
struct NearHelper {
    resources: Arc<Resources>,
    behaviours: &'static [Behaviour],
    asked: AtomicUsize,
}

impl AskHelper for NearHelper {
    fn keep(&self, _helpers: &[PeerAddress]) {}

    fn ask<'a>(
        &'a self,
        helper: PeerAddress,
        job: &'a LentJob,
        request: DecodeRequest,
        bytes: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<HelpAnswer, QuicError>> {
        let behaviour = self.behaviours[self.asked.fetch_add(1, Relaxed) % self.behaviours.len()];
        let decode = async move {
            let (resources, job) = (self.resources.clone(), (job.describe)());
            let answer = blocking(move || {
                let job = HelpedJob::new(&resources.decoding, job).expect("it has no functions");
                job.answer((&resources.decoding, &resources.helpers), &request, &bytes.concat().into())
            });
            let (samples, columns) = answer.await;
            DecodedSamples { samples, bytes: columns.concat().into() }
        };
        Box::pin(async move {
            match behaviour {
                Behaviour::Decodes => Ok(HelpAnswer::Decoded(decode.await)),
                Behaviour::DecodesHalf => {
                    let DecodedSamples { samples, bytes } = decode.await;
                    let (mut at, mut kept, mut half) = (0, Vec::new(), Vec::new());
                    for (number, sample) in samples.into_iter().enumerate() {
                        let count =
                            sample.as_ref().map_or(0, |lengths| job.sizes.bytes_of(&[]) + lengths.iter().sum::<u64>());
                        let is_kept = number % 2 == 1;
                        kept.extend_from_slice(if is_kept { &bytes[at..at + count as usize] } else { &[] });
                        half.push(sample.filter(|_| is_kept));
                        at += count as usize;
                    }
                    Ok(HelpAnswer::Decoded(DecodedSamples { samples: half, bytes: kept.into() }))
                }
                Behaviour::IsBusy => Ok(HelpAnswer::Busy),
                Behaviour::IsUnable => Ok(HelpAnswer::Unable("it lacks a module".to_owned())),
                Behaviour::BreaksOff => {
                    Err(QuicError::Protocol { address: helper.quic, problem: "it broke off".to_owned() })
                }
                Behaviour::Hangs => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_helper_does_not_decode_is_decoded_here() {
    use Behaviour::{BreaksOff, Decodes, DecodesHalf, Hangs, IsBusy, IsUnable};
    let fixture = FeedFixture::new(&[3, 50, 51, 119], "epochs = 2\nglobal_batch = 60\nmax_bad_fraction = 1.0");
    let (alone, _) = run(&resources(64 << 20, None), &fixture.session(1), Position::START)
        .await
        .expect("the batches without helpers");
    for (behaviours, has_received) in [
        (&[Decodes][..], true),
        (&[DecodesHalf], true),
        (&[Decodes, IsBusy, DecodesHalf], true),
        (&[IsUnable], false),
        (&[BreaksOff], false),
        (&[Hangs], false),
        (&[Decodes, Decodes, Decodes, BreaksOff], true),
    ] {
        // Its own threads rest so long that there is much to lend.
        let budget = Budget { cores: 0.01, memory_bytes: 64 << 20, disk: None };
        let home = Resources::new("home", budget).unwrap();
        let helper = NearHelper { resources: resources(64 << 20, None), behaviours, asked: AtomicUsize::new(0) };
        let helping = helper.resources.clone();
        home.helpers.start(Box::new(helper));
        home.helpers.set(HelperList { version: 1, helpers: vec![address(1), address(2)] });
        home.helpers.note_own_sample(Duration::from_secs(1));
        let (helped, _) = run(&home, &fixture.session(2), Position::START).await.expect("the batches with helpers");
        assert!(helped == alone, "{behaviours:?}");
        let HelpStats { received_samples, returned_samples, .. } = home.helpers.stats();
        assert_eq!(received_samples > 0, has_received, "{behaviours:?}");
        assert!(returned_samples > 0, "at least bad samples are, with {behaviours:?}");
        assert!(helping.helpers.stats().made_samples >= received_samples, "{behaviours:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_pictures_are_sent_with_their_nulls_and_count_as_what_they_become() {
    const PICTURE: &[u8] = include_bytes!("../../../assets/jpegs/chelsea.jpg");
    let text = "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"frames\"\nfrom = \"frames\"\n\
                decode = \"image\"\nops = [{ random_resized_crop = [8, 9] }]\nmax_rows = 3\n";
    let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
    let job = JobFile::parse(text, "job.toml").unwrap().freeze(&facts).unwrap();
    let whole = PICTURE.len() as u64;
    let request = |lists: &[&[Option<u64>]], bytes: &[u64]| {
        let sample = |(sizes, bytes): (&&[Option<u64>], &u64)| {
            let fields = vec![StoredField { number: 0, value: StoredValue::List(sizes.to_vec()), bytes: *bytes }];
            StoredSample { epoch: 1, id: SampleId(3), sample_in_record: 0, fields }
        };
        let batch = BatchId { session: SessionId(1), rank: 0, from: Position::START };
        DecodeRequest { job: JOB, batch, samples: lists.iter().zip(bytes).map(sample).collect() }
    };
    let lists = [&[Some(whole); 2][..], &[], &[Some(whole), None], &[Some(whole); 3]];
    let good = request(&lists, &[2 * whole, 0, whole, 3 * whole]);
    let wrong = [
        request(&[&[Some(whole)]], &[whole - 1]),
        request(&[&[Some(u64::MAX), Some(whole + 1)]], &[whole]),
        request(&[&vec![None; (1 << 16) + 1]], &[0]),
    ];
    let resources = resources(64 << 20, None);
    let describe = HelpJob { job: job.clone(), classes: Vec::new() };
    let answer = blocking(move || {
        let helped = HelpedJob::new(&resources.decoding, describe).expect("it has no functions");
        let picture_bytes = 8 * 9 * 3;
        assert_eq!(helped.bytes(&good), Some((6 * whole, 7 * picture_bytes)));
        for wrong in &wrong {
            assert_eq!(helped.bytes(wrong), None, "{wrong:?}");
        }
        helped.answer((&resources.decoding, &resources.helpers), &good, &PICTURE.repeat(6).into())
    });
    let (samples, columns) = answer.await;
    let decoder = Decoder::new(&job, []).unwrap();
    let decoded = |pictures: usize| {
        let value = FieldValue::List(vec![Some(Bytes::from_static(PICTURE)); pictures]);
        let (key, mut made) = (SampleKey { epoch: 1, id: SampleId(3), sample_in_record: 0 }, Bytes::new());
        decoder.decode_sample(key, &|_: &str| Some(value.clone()), &mut [FieldTarget::Ragged(&mut made)]).unwrap();
        made
    };
    assert_eq!(samples, [Some(vec![2 * 216]), Some(vec![0]), None, Some(vec![3 * 216])]);
    assert!(columns == [decoded(2), decoded(0), decoded(3)]);
}

fn address(worker: u64) -> PeerAddress {
    PeerAddress { worker: WorkerId(worker), quic: ([10, 0, 0, worker as u8], 1).into() }
}

fn queue(samples: usize) -> Queue {
    Queue { of_batch: samples, of_all: samples, threads: 1 }
}

fn helpers(workers: &[u64]) -> Helpers {
    let helpers = Helpers::default();
    helpers.start(Box::new(Silent));
    helpers.set(HelperList { version: 1, helpers: workers.iter().map(|worker| address(*worker)).collect() });
    helpers
}

#[test]
fn samples_are_lent_only_while_the_queue_is_longer_than_a_helper_takes() {
    let (helpers, now) = (helpers(&[1]), Instant::now());
    let turn = |of_all, threads| helpers.take_turn(JOB, Queue { of_batch: 4, of_all, threads }, now);
    assert!(turn(1000, 1).is_none(), "nothing is known of this process's own pace");
    helpers.note_own_sample(Duration::from_millis(10));
    let first = turn(4, 1).expect("40 ms are queued");
    assert_eq!(first.samples, 1);
    first.finish(1, 1, now + Duration::from_millis(60));
    assert!(turn(4, 1).is_none(), "the helper takes longer than the 40 ms that are queued");
    assert!(turn(100, 4).is_some());
    assert!(turn(100, 64).is_none(), "so many threads are faster");
}

#[test]
fn chunks_are_smaller_the_more_helpers_there_are_and_towards_the_end_of_a_batch() {
    let samples = |workers: &[u64], of_batch| {
        let helpers = helpers(workers);
        helpers.note_own_sample(Duration::from_secs(1));
        helpers.take_turn(JOB, queue(of_batch), Instant::now()).map(|turn| turn.samples)
    };
    let of_one: Vec<_> = [1000, 32, 9, 1, 0].map(|of_batch| samples(&[1], of_batch)).into();
    assert_eq!(of_one, [Some(CHUNK_SAMPLES), Some(8), Some(3), Some(1), None]);
    assert_eq!(samples(&[1, 2, 3], 32), Some(4));
}

#[test]
fn the_helper_that_is_faster_is_asked_first_and_one_that_fails_or_is_unable_not_again() {
    let (helpers, now) = (helpers(&[1, 2]), Instant::now());
    helpers.note_own_sample(Duration::from_secs(1));
    let turn = helpers.take_turn(JOB, queue(100), now).unwrap();
    let slow = turn.address;
    turn.finish(1, 1, now + Duration::from_millis(20));
    let turn = helpers.take_turn(JOB, queue(100), now).unwrap();
    let fast = turn.address;
    assert_ne!(fast, slow, "it was not asked yet");
    assert!(turn.unable(JOB, 3));
    let turn = helpers.take_turn(JOB, queue(100), now).unwrap();
    assert_eq!(turn.address, slow);
    turn.fail(2, now);
    assert!(helpers.take_turn(JOB, queue(100), now).is_none());
    assert!(helpers.take_turn(JOB, queue(100), now + ASIDE).is_some(), "it is tried again");
    assert_eq!(helpers.take_turn(Fingerprint(8), queue(100), now).map(|turn| turn.address), Some(fast), "another job");
    let HelpStats { received_samples, returned_samples, .. } = helpers.stats();
    assert_eq!((received_samples, returned_samples), (1, 5));
}

#[test]
fn a_new_list_keeps_what_is_known_of_helpers_and_forgets_the_others() {
    let (helpers, now) = (helpers(&[1]), Instant::now());
    helpers.note_own_sample(Duration::from_secs(1));
    helpers.take_turn(JOB, queue(100), now).unwrap().fail(1, now);
    helpers.set(HelperList { version: 2, helpers: vec![address(1)] });
    assert!(helpers.take_turn(JOB, queue(100), now).is_none(), "it is aside");
    helpers.set(HelperList::default());
    assert!(helpers.links().is_none());
    helpers.set(HelperList { version: 3, helpers: vec![address(1)] });
    assert!(helpers.take_turn(JOB, queue(100), now).is_some());
}

#[test]
fn pictures_of_different_sizes_count_with_the_most_that_they_can_have() {
    let ops = ImageOp::examples().into_iter().filter(|op| op.name() == "smart_resize").collect();
    let image = ImageColumn { ops, size: ImageColumn::DIFFERENT_SIZES, ..ImageColumn::default() };
    let columns = [Column::new("image", "x", ColumnKind::Image(image), DType::F32)];
    let sizes = ColumnSizes::new(&columns, &Layout::new(&columns, 1));
    let files = [StoredField { number: 0, value: StoredValue::File, bytes: 9 }];
    assert_eq!(sizes.bytes_of(&files), 4 * 3 * 1_003_520);
    assert_eq!(sizes.reply_bytes(1, &[Some(vec![12 * 784])]), Some(12 * 784));
    assert_eq!(sizes.reply_bytes(1, &[Some(vec![12 * 784 + 4])]), None, "it is no whole number of pixels");
}

#[test]
fn a_reply_that_cannot_be_meant_is_recognised() {
    let column = |name: &str, kind, dtype| Column::new(name, "x", kind, dtype);
    let columns = [
        column("label", ColumnKind::Int(IntColumn), DType::I64),
        column("raw", ColumnKind::Bytes(BytesColumn { max_bytes: 100 }), DType::U8),
    ];
    let sizes = ColumnSizes::new(&columns, &Layout::new(&columns, 1));
    assert_eq!(sizes.bytes_of(&[]), 8);
    assert_eq!(sizes.reply_bytes(2, &[Some(vec![100]), None]), Some(108));
    assert_eq!(sizes.reply_bytes(2, &[Some(vec![100])]), None, "a sample is missing");
    assert_eq!(sizes.reply_bytes(1, &[Some(vec![101])]), None, "it is too long");
    assert_eq!(sizes.reply_bytes(1, &[Some(vec![])]), None, "a column is missing");
    assert_eq!(sizes.reply_bytes(1, &[Some(vec![1, 1])]), None);
}
