//! Tests of feeds whose operations take recordings of other datasets.

use std::fs;

use spdl_job::{ColumnKind, JobFile, SoundOp, SoundStep};
use spdl_shard::manifest::Manifest;
use spdl_sound::operations::{ImpulseResponse, add_noise};
use spdl_types::Draw;

use super::*;

const RATE: u32 = 8_000;
const OPS: &str =
    "{ reverb = { dataset = \"ROOMS\", p = 0.5 } }, { gain = 3 }, { noise = { snr = [0, 20], dataset = \"NOISE\" } }";

/// Returns a WAV file of 32-bit floats.
fn wav(samples: &[f32]) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x03\0\x01\0".to_vec();
    file.extend([RATE, RATE * 4].map(u32::to_le_bytes).as_flattened());
    file.extend(b"\x04\0\x20\0data");
    file.extend((4 * samples.len() as u32).to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

fn random(seed: u64, id: u64, length: usize) -> Vec<f32> {
    let mut draw = Draw::new(seed, 0, id);
    (0..length).map(|_| draw.between(-0.5, 0.5) as f32).collect()
}

fn speech(id: u64) -> Vec<f32> {
    random(1, id, 400 + 10 * id as usize)
}

/// Some noises are shorter than all samples, and most are longer.
fn noise(id: u64) -> Vec<f32> {
    random(2, id, if id.is_multiple_of(5) { 97 } else { 24_000 + id as usize })
}

/// Each begins at its first sample, which is the strongest.
fn room(id: u64) -> Vec<f32> {
    let mut response = random(3, id, 300);
    response[0] = 2.0;
    response
}

/// Datasets of speech, noises and rooms, and a job of the first with these operations. The recordings in `bad` are no sounds.
struct Sounds {
    speech: FeedFixture,
    /// Noises and rooms.
    others: [FeedFixture; 2],
}

fn sounds(ops: &str, bad: &[u64], more: &str) -> Sounds {
    sounds_with(ops, bad, more, "", false)
}

/// Returns the same with `keys` of the column; the index of noises may have tables of their packets.
fn sounds_with(ops: &str, bad: &[u64], more: &str, keys: &str, has_tables: bool) -> Sounds {
    let plain = "name = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 65536";
    let of = |value: &dyn Fn(u64) -> Vec<u8>| FeedFixture::of_values(value, TWO_EPOCHS, plain);
    let mut speech = of(&|id| wav(&self::speech(id)));
    let noise = |id| if bad.contains(&id) { b"no sound".to_vec() } else { wav(&self::noise(id)) };
    let noise = if has_tables { FeedFixture::of_sounds(noise, TWO_EPOCHS, plain) } else { of(&noise) };
    let rooms = of(&|id| wav(&room(id)));
    let manifest = |fixture: &FeedFixture| {
        Manifest::open(fs::read(fixture.directory.path().join("manifest.spdl")).unwrap()).unwrap()
    };
    let table =
        |fixture: &FeedFixture| format!("{{ url = \"{}\", from = \"txt\" }}", fixture.directory.path().display());
    let ops = ops.replace("\"NOISE\"", &table(&noise)).replace("\"ROOMS\"", &table(&rooms));
    let file = format!(
        "name = \"train\"\ndataset = \"{}\"\nseed = 5\n{TWO_EPOCHS}\n{more}\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
         [[column]]\nname = \"wave\"\nfrom = \"txt\"\ndecode = \"audio\"\nrate = {RATE}\n{keys}\nops = [{ops}]\n",
        speech.directory.path().display()
    );
    let mut file = JobFile::parse(&file, "job.toml").unwrap();
    for dataset in file.sound_datasets() {
        let noted = [&noise, &rooms].into_iter().find(|one| dataset.url == one.directory.path().to_str().unwrap());
        let manifest = manifest(noted.unwrap());
        dataset.note(manifest.fingerprint(), manifest.samples()).unwrap();
    }
    speech.job = file.freeze(&manifest(&speech).facts()).unwrap();
    Sounds { speech, others: [noise, rooms] }
}

/// Returns what operations make of a sample, by the functions that they are made of.
fn expected(job: &spdl_job::Job, epoch: u64, id: u64) -> Vec<f32> {
    let ColumnKind::Audio(audio) = &job.columns[1].kind else { panic!("a sound") };
    let mut samples = speech(id);
    let mut own = Draw::new(job.seed, epoch, id);
    for (number, op) in audio.ops.iter().enumerate() {
        match op {
            SoundOp::Gain(_) => {
                let Some(SoundStep::Gain { decibels }) = op.draw(&mut own) else { panic!("it is always made") };
                spdl_sound::operations::gain(&mut samples, decibels);
            }
            op => {
                let Some(drawn) = op.draw_sound(number, (job.seed, epoch, id)) else { continue };
                match drawn.step {
                    SoundStep::Reverb => ImpulseResponse::new(&room(drawn.sample)).unwrap().apply(&mut samples),
                    SoundStep::Noise { decibels } => {
                        let (noise, mut draw) = (noise(drawn.sample), drawn.draw);
                        let start = spdl_sound::operations::noise_start(noise.len(), samples.len(), &mut draw);
                        add_noise(&mut samples, &noise, start, decibels);
                    }
                    step => panic!("{step:?}"),
                }
            }
        }
    }
    samples
}

fn samples(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_gets_the_same_noise_and_rooms_however_little_memory_there_is() {
    let Sounds { speech: fixture, others: _others } = sounds(OPS, &[], "");
    let plenty = resources(PLENTY, None);
    let (alone, _) = run(&plenty, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(alone.len() as u64, 2 * SAMPLES);
    for ((at, _), Seen { id, label, text, .. }) in &alone {
        assert_eq!(*label, *id as i64 * 3);
        assert!(samples(text) == expected(&fixture.job, at.epoch, *id), "sample {id} of epoch {}", at.epoch);
    }
    assert_every_world_gets(&alone, &plenty, &fixture).await;
    // There the datasets of noises and rooms are too large for memory, and recordings are read one by one.
    let little = resources(MIN_MEMORY_BYTES, None);
    let (again, _) = run(&little, &fixture.session(2), Position::START).await.unwrap();
    assert!(again == alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_dataset_of_noises_is_read_once_and_a_store_that_fails_changes_nothing() {
    let Sounds { speech: fixture, others: _others } = sounds("{ noise = { snr = 10, dataset = \"NOISE\" } }", &[], "");
    let (plain, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let (made, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    let sounds = resources.datasets.open_sounds(&fixture.job).await.unwrap();
    let store = made.lock().clone().unwrap();
    let faults = [StoreFault::Unavailable, StoreFault::Cut].into_iter().cycle().take(12);
    store.fail_next([StoreFault::FlippedBit].into_iter().chain(faults));
    let (seen, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert!(seen == plain);
    assert_eq!(store.faults_left(), 0);
    let bytes = store.bytes();
    run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!(store.bytes(), bytes, "the noises are in memory");
    drop(sounds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_long_noise_the_part_is_read_that_it_may_come_from() {
    let mut read = Vec::new();
    for has_tables in [false, true] {
        let ops = "{ noise = { snr = 10, dataset = \"NOISE\" } }";
        let Sounds { speech: fixture, others: _others } = sounds_with(ops, &[], "", "max_seconds = 1", has_tables);
        let (made, wrap) = flaky();
        // The dataset of noises is too large for memory.
        let resources = resources(MIN_MEMORY_BYTES, Some(wrap));
        let sounds = resources.datasets.open_sounds(&fixture.job).await.unwrap();
        let store = made.lock().clone().unwrap();
        let before = store.bytes();
        let (seen, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        assert_eq!(seen.len() as u64, 2 * SAMPLES);
        for ((at, _), Seen { id, text, .. }) in &seen {
            assert!(samples(text) == expected(&fixture.job, at.epoch, *id), "sample {id} of epoch {}", at.epoch);
        }
        read.push(store.bytes() - before);
        drop(sounds);
    }
    // The longest sample has a third of the frames of most noises.
    assert!(0 < read[1] && read[1] * 2 < read[0], "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_that_is_no_sound_makes_the_samples_bad_that_take_it() {
    let bad = [3, 50];
    let Sounds { speech: fixture, others: _others } =
        sounds("{ noise = { snr = 10, dataset = \"NOISE\" } }", &bad, "bad_samples = \"mask\"");
    let resources = resources(PLENTY, None);
    let (seen, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
    let ColumnKind::Audio(audio) = &fixture.job.columns[1].kind else { panic!("a sound") };
    let mut masked = 0;
    for ((at, flags), Seen { id, text, .. }) in &seen {
        let drawn = audio.ops[0].draw_sound(0, (fixture.job.seed, at.epoch, *id)).unwrap();
        let is_bad = bad.contains(&drawn.sample);
        assert_eq!(flags & entry_flags::MASKED != 0, is_bad, "sample {id} takes {}", drawn.sample);
        masked += u32::from(is_bad);
        assert!(is_bad || samples(text) == expected(&fixture.job, at.epoch, *id));
    }
    assert!(masked > 0);
    let reported = resources.decoding.bad.lock().unreported(100);
    let cause = &reported.first().unwrap().cause;
    assert!(cause.contains("`noise` takes `0000"), "{cause}");
}

#[tokio::test]
async fn another_dataset_at_the_place_of_the_noises_is_refused() {
    let Sounds { speech: mut fixture, others } = sounds("{ noise = { snr = 10, dataset = \"NOISE\" } }", &[], "");
    let ColumnKind::Audio(audio) = &mut fixture.job.columns[1].kind else { panic!("a sound") };
    let SoundOp::Noise(noise) = &mut audio.ops[0] else { panic!("noise") };
    noise.dataset.as_mut().unwrap().url = others[1].directory.path().to_str().unwrap().to_owned();
    let error = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap_err();
    assert!(matches!(error, FeedError::DatasetDiffers { .. }), "{error}");
}
