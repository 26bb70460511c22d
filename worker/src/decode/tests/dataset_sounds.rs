//! Tests of operations that take recordings of other datasets: channels, rates, and what is said of recordings that cannot be taken.

use spdl_job::{ColumnKind, SoundDataset, SoundStep};
use spdl_sound::{
    SoundResampler,
    operations::{ImpulseResponse, add_noise, noise_start},
};

use super::{sounds::wav, *};
use crate::decode::record::FieldLookup;

/// A sound, and the only recording of a dataset.
struct WithRecording<'a> {
    file: &'a [u8],
    recording: Option<DatasetSound>,
}

impl FieldLookup for WithRecording<'_> {
    fn value(&self, _: &str) -> Option<FieldValue> {
        Some(Bytes::copy_from_slice(self.file).into())
    }

    fn dataset_sound(&self, _: &SoundDataset, sample: u64) -> Option<&DatasetSound> {
        assert_eq!(sample, 0);
        self.recording.as_ref()
    }
}

fn job_of(op: &str, keys: &str) -> Job {
    let dataset = format!("{{ url = \"/noises\", fingerprint = \"{}\", samples = 1 }}", Fingerprint(3));
    let ops = op.replace("DATASET", &dataset);
    job(&[&format!("name = \"wave\"\nfrom = \"wav\"\ndecode = \"audio\"\nrate = 16000\n{keys}\nops = [{ops}]")])
}

/// Decodes sample `id`, which takes the recording.
fn decoded(job: &Job, id: u64, file: &[u8], recording: Option<Result<&[u8], &str>>) -> Result<Vec<f32>, String> {
    let decoder = Decoder::new(job, CLASSES).unwrap();
    let recording = recording.map(|file| {
        let file = file.map(Bytes::copy_from_slice).map_err(str::to_owned);
        DatasetSound { key: "street".to_owned(), file }
    });
    let mut value = Bytes::new();
    let fields = WithRecording { file, recording };
    let decoded = decoder.decode_record(key(id), &fields, &mut [FieldTarget::Ragged(&mut value)]);
    decoded.map_err(|error| error.to_string())?;
    Ok(value.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect())
}

fn waves(frames: usize, step: f32) -> Vec<f32> {
    (0..frames).map(|frame| (frame as f32 * step).sin() / 2.0).collect()
}

/// What was drawn for sample `id`.
fn drawn(job: &Job, id: u64) -> (SoundStep, spdl_types::Draw) {
    let ColumnKind::Audio(audio) = &job.columns[0].kind else { panic!("a sound") };
    let drawn = audio.ops[0].draw_sound(0, (17, 1, id)).unwrap();
    (drawn.step, drawn.draw)
}

#[test]
fn a_recording_has_one_channel_and_the_rate_of_the_sound_and_each_channel_gets_it() {
    let (left, right) = (waves(3_000, 0.05), waves(3_000, 0.11));
    let both: Vec<f32> = left.iter().zip(&right).flat_map(|(left, right)| [*left, *right]).collect();
    let file = wav(16_000, 2, &both);
    for frames in [500, 8_000] {
        let mono = waves(frames, 0.3);
        let stereo: Vec<f32> = mono.iter().flat_map(|sample| [1.5 * sample, 0.5 * sample]).collect();
        let recording = wav(8_000, 2, &stereo);
        let resampler = SoundResampler::new(8_000, 16_000).unwrap();
        let mut noise = vec![0.0; 2 * frames];
        resampler.resample(&mono, &mut noise);
        let job = job_of("{ noise = { snr = [0, 10], dataset = DATASET } }", "channels = 2");
        for id in 0..5 {
            let (SoundStep::Noise { decibels }, mut draw) = drawn(&job, id) else { panic!("noise") };
            let start = noise_start(noise.len(), 3_000, &mut draw);
            let of_frames = noise.iter().cycle().skip(start).take(3_000);
            let of_channels: Vec<f32> = of_frames.flat_map(|sample| [*sample; 2]).collect();
            let mut expected = both.clone();
            add_noise(&mut expected, &of_channels, 0, decibels);
            let found = decoded(&job, id, &file, Some(Ok(&recording))).unwrap();
            let off = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max);
            assert!(found.len() == expected.len() && off < 1e-5, "{frames} frames, sample {id}: {off}");
        }
    }
    let response = waves(300, 0.7);
    let found = decoded(
        &job_of("{ reverb = { dataset = DATASET } }", "channels = 2"),
        0,
        &file,
        Some(Ok(&wav(16_000, 1, &response))),
    );
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    for (channel, mut expected) in [left, right].into_iter().enumerate() {
        ImpulseResponse::new(&response).unwrap().apply(&mut expected);
        assert!(found.iter().skip(channel).step_by(2).eq(&expected), "channel {channel}");
    }
}

#[test]
fn a_recording_that_cannot_be_taken_is_named() {
    let file = wav(16_000, 1, &waves(2_000, 0.05));
    let long = wav(16_000, 1, &vec![0.5; ImpulseResponse::MOST_SAMPLES + 1]);
    let silent = wav(16_000, 1, &[0.0; 100]);
    let noise = "{ noise = { snr = 10, dataset = DATASET } }";
    let reverb = "{ reverb = { dataset = DATASET } }";
    for (op, recording, expected) in [
        (noise, None, "`noise` takes `sample 0` of dataset `/noises`, which was not read"),
        (noise, Some(Err("is damaged: all of it")), "`noise` takes `street` of dataset `/noises`, which is damaged"),
        (noise, Some(Ok(&b"no sound"[..])), "`noise` takes `street` of dataset `/noises`, which "),
        (noise, Some(Ok(&wav(8_000, 1, &[])[..])), "which has no samples"),
        (reverb, Some(Ok(&long[..])), "an impulse response has at most 960000"),
        (reverb, Some(Ok(&silent[..])), "an impulse response is silent"),
    ] {
        let error = decoded(&job_of(op, ""), 0, &file, recording).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(decoded(&job_of(noise, ""), 0, &file, Some(Ok(&silent))).is_ok(), "silence changes nothing");
}
