//! Tests of sounds: segments, silence, clipping, memory, and what is said of files that are none. Python's tests compare samples with
//! those that `soundfile` reads.

use spdl_feed::BadSampleKind;

use super::*;

const FLAC: &[u8] = include_bytes!("../../../../crates/media/tests/stereo.flac");

/// Returns a WAV file of 32-bit floats.
fn wav(rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
    let data = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x03\0".to_vec();
    file.extend(channels.to_le_bytes());
    file.extend([rate, rate * 4 * u32::from(channels)].map(u32::to_le_bytes).as_flattened());
    file.extend([4 * channels, 32].map(u16::to_le_bytes).as_flattened());
    file.extend(b"data");
    file.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
    file.extend(data);
    file
}

fn column(keys: &str) -> String {
    format!("name = \"wave\"\nfrom = \"wav\"\ndecode = \"audio\"\n{keys}")
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect()
}

/// Decodes a whole sound.
fn whole(decoder: &Decoder, file: &[u8]) -> Result<Bytes, BadSampleCause> {
    let mut value = Bytes::new();
    let field = |_: &str| Some(Bytes::copy_from_slice(file).into());
    decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut value)])?;
    Ok(value)
}

#[test]
fn a_random_segment_begins_at_a_frame_that_seed_epoch_and_sample_decide() {
    let job = job(&[&column("rate = 100\nsegment = { seconds = 0.1 }")]);
    let ramp: Vec<f32> = (0_u16..1000).map(f32::from).collect();
    let file = wav(100, 1, &ramp);
    let mut starts = Vec::new();
    for id in 0..200 {
        let start = f32s(&decode(&job, key(id), &[("wav", &file)]).unwrap()[0]);
        let expected: Vec<f32> = (0_u16..10).map(|frame| start[0] + f32::from(frame)).collect();
        assert_eq!(start, expected);
        // The first number that is drawn for the sample, as a place among the 991 possible ones.
        let drawn = u128::from(spdl_types::Draw::new(17, 1, id).bits());
        assert_eq!(start[0] as u128, (drawn * 991) >> 64);
        starts.push(start[0]);
    }
    assert!(starts.iter().any(|start| *start < 50.0) && starts.iter().any(|start| *start > 940.0), "{starts:?}");
}

#[test]
fn silence_follows_a_short_sound_and_its_length_is_told() {
    let follower = |name: &str| format!("name = \"{name}\"\nfrom = \"wav\"\ndecode = \"{name}\"\nfollows = \"wave\"");
    let (length, rate) = (follower("audio_length"), follower("audio_rate"));
    let job = job(&[&column("rate = 8000\nsegment = { seconds = 0.001 }\nchannels = 2"), &length, &rate]);
    let columns = decode(&job, key(0), &[("wav", &wav(8000, 2, &[0.5, -0.5, 0.25, 1.0]))]).unwrap();
    assert_eq!(f32s(&columns[0]), [&[0.5, -0.5, 0.25, 1.0][..], &[0.0; 12]].concat());
    assert_eq!((&columns[1][..], &columns[2][..]), (&2_i64.to_le_bytes()[..], &8000_i64.to_le_bytes()[..]));
}

#[test]
fn the_nearest_whole_number_is_taken_and_what_is_too_loud_is_clipped() {
    let decoder = Decoder::new(&job(&[&column("dtype = \"i16\"")]), CLASSES).unwrap();
    let samples = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5 / 32_768.0, 1.5 / 32_768.0, -0.75 / 32_768.0];
    let value = whole(&decoder, &wav(8000, 1, &samples)).unwrap();
    let value: Vec<i16> = value.as_chunks().0.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
    assert_eq!(value, [0, 32_767, -32_768, 32_767, -32_768, 0, 2, -1]);
}

#[test]
fn channels_of_another_rate_are_each_resampled() {
    let stereo = Decoder::new(&job(&[&column("rate = 8000\nchannels = 2")]), CLASSES).unwrap();
    let mono = Decoder::new(&job(&[&column("rate = 8000")]), CLASSES).unwrap();
    let left: Vec<f32> = (0_u16..400).map(|frame| (f32::from(frame) * 0.05).sin()).collect();
    let right: Vec<f32> = (0_u16..400).map(|frame| (f32::from(frame) * 0.03).cos() * 0.5).collect();
    let both: Vec<f32> = left.iter().zip(&right).flat_map(|(left, right)| [*left, *right]).collect();
    let of_both = f32s(&whole(&stereo, &wav(16_000, 2, &both)).unwrap());
    let of_each = [left, right].map(|channel| f32s(&whole(&mono, &wav(16_000, 1, &channel)).unwrap()));
    assert_eq!(of_both.len(), 2 * 200);
    let [left, right] = of_each;
    assert_eq!(of_both, left.iter().zip(&right).flat_map(|(left, right)| [*left, *right]).collect::<Vec<f32>>());
}

#[test]
fn a_sound_that_takes_more_memory_than_there_is_for_decoding_is_a_bad_sample() {
    let decoder = Decoder::new(&job(&[&column("")]), CLASSES).unwrap();
    let needed = (4 << 20) + 9000 * 4;
    assert!(whole(&decoder.clone().with_memory_bytes(needed), FLAC).is_ok());
    let cause = whole(&decoder.with_memory_bytes(needed - 1), FLAC).unwrap_err();
    assert_eq!(
        cause.to_string(),
        format!(
            "column `wave`: field `wav` is a sound that takes {needed} bytes to decode; {} are for decoding (a part of the memory budget)",
            needed - 1
        )
    );
}

#[test]
fn what_a_column_cannot_hold_is_named_and_counted_by_its_kind() {
    let of =
        |keys: &str, file: &[u8]| whole(&Decoder::new(&job(&[&column(keys)]), CLASSES).unwrap(), file).unwrap_err();
    let tone = wav(8000, 1, &[0.5; 9000]);
    for (cause, text, kind) in [
        (of("channels = 2", &tone), "has 1 channels, and `channels` is 2", "is no sound that the column can hold"),
        (
            of("max_seconds = 1\nrate = 8000", &tone),
            "has 9000 frames of 8000 Hz; `max_seconds` allows 8000",
            "is a longer sound than `max_seconds`",
        ),
        (of("", &wav(8000, 1, &[])), "has no samples", "is no sound that the column can hold"),
        (
            of("", &wav(8000, 1, &[0.0, f32::INFINITY])),
            "not a finite number, in frame 1",
            "is no sound that the column can hold",
        ),
        (
            of("", b"hello"),
            "is no WAV, FLAC, MP3, Ogg, AAC or MP4 file: it begins with \"hello\"",
            "is no sound that the column can hold",
        ),
        (of("", b""), "field `wav` is empty", "is empty"),
        (of("", &FLAC[..FLAC.len() - 9]), "the file ends within this packet", "is no sound that the column can hold"),
    ] {
        assert!(cause.to_string().contains(text), "{cause}");
        assert_eq!(cause.kind(true), BadSampleKind::new(format!("column `wave`: field `wav` {kind}"), None));
    }
}

#[test]
fn features_have_as_many_frames_as_the_job_counts_and_those_of_silence_too() {
    let samples: Vec<f32> = (0..9_000).map(|frame| (frame as f32 * 0.05).sin() / 2.0).collect();
    let length = "name = \"length\"\nfrom = \"wav\"\ndecode = \"audio_length\"\nfollows = \"wave\"";
    for (preset, rate, per_second) in [
        ("\"whisper\"", 16_000, 100),
        ("\"kaldi\"", 16_000, 98),
        ("\"lhotse\"", 8_000, 98),
        ("\"nemo\"", 16_000, 100),
        ("\"torchaudio\", hop_length = 100", 10_000, 101),
    ] {
        let keys = format!("rate = {rate}\nfeatures = {{ preset = {preset}, mels = 40 }}");
        for frames in [1, 150, 401, 799, 9_000] {
            let file = wav(rate, 1, &samples[..frames]);
            let ragged = job(&[&column(&keys)]);
            let decoder = Decoder::new(&ragged, []).unwrap();
            let spdl_job::ColumnKind::Audio(audio) = &ragged.columns[0].kind else { panic!("{preset}") };
            match (audio.rows(frames as u64), whole(&decoder, &file)) {
                (0, result) => assert!(result.unwrap_err().to_string().contains("give no frame of `features`")),
                (rows, result) => assert_eq!(result.unwrap().len() as u64, rows * 40 * 4, "{preset}: {frames}"),
            }
            let fixed = job(&[&column(&format!("{keys}\nsegment = {{ seconds = 1, pick = \"start\" }}")), length]);
            let [value, length] = &decode(&fixed, key(0), &[("wav", &file)]).unwrap()[..] else { panic!("{preset}") };
            assert_eq!(value.len(), per_second * 40 * 4, "{preset}");
            let sound = (frames as u64).min(rate.into());
            assert_eq!(length[..], i64::try_from(audio.rows(sound)).unwrap().to_le_bytes(), "{preset}: {frames}");
            assert!(f32s(value).iter().all(|value| value.is_finite()));
        }
    }
}
