//! Tests of sounds: segments, silence, clipping, memory, and what is said of files that are none. Python's tests compare samples with
//! those that `soundfile` reads.

use spdl_feed::BadSampleKind;

use super::*;

const FLAC: &[u8] = include_bytes!("../../../../crates/media/tests/stereo.flac");

/// Returns a WAV file of 32-bit floats.
pub(super) fn wav(rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
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
fn fields_of_the_record_say_which_part_of_the_file_is_the_sound() {
    let ramp: Vec<f32> = (0_u16..1000).map(f32::from).collect();
    let file = wav(100, 1, &ramp);
    let span = "rate = 100\nspan = { start = \"offset\", seconds = \"duration\" }";
    let length = "name = \"length\"\nfrom = \"wav\"\ndecode = \"audio_length\"\nfollows = \"wave\"";
    let whole_job = job(&[&column(span)]);
    let of = |job: &Job, fields: &[(&str, &[u8])]| {
        let decoder = Decoder::new(job, CLASSES).unwrap();
        let mut value = Bytes::new();
        let lookup = |name: &str| {
            let found = fields.iter().find(|(field, _)| *field == name)?;
            Some(Bytes::copy_from_slice(found.1).into())
        };
        decoder.decode_sample(key(0), &lookup, &mut [FieldTarget::Ragged(&mut value)])?;
        Ok::<_, BadSampleCause>(f32s(&value))
    };
    for (offset, duration, expected) in [
        ("2.5", "1", 250..350),
        ("", "1.004", 0..100),
        ("9", "", 900..1000),
        ("", " ", 0..1000),
        // A list may round what it says.
        ("9", "1.4", 900..1000),
    ] {
        let fields = [("wav", &file[..]), ("offset", offset.as_bytes()), ("duration", duration.as_bytes())];
        let found = of(&whole_job, &fields).unwrap();
        assert_eq!(found, expected.map(|frame| frame as f32).collect::<Vec<_>>(), "{offset:?} {duration:?}");
    }
    for (offset, duration, expected) in [
        ("10", "1", "field `offset` begins the sound at 10 seconds, and the file has 10"),
        ("-1", "1", "field `offset` begins the sound at -1 seconds"),
        ("9", "1.6", "field `duration` ends the sound at 10.6 seconds, and the file has 10"),
        ("9", "0", "field `duration` is 0 seconds, less than a frame of 100 Hz"),
        ("soon", "1", "field `offset` is \"soon\", not a number"),
        ("nan", "1", "field `offset` is \"nan\", not a number"),
    ] {
        let fields = [("wav", &file[..]), ("offset", offset.as_bytes()), ("duration", duration.as_bytes())];
        let error = of(&whole_job, &fields).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = of(&whole_job, &[("wav", &file), ("offset", b"0")]).unwrap_err().to_string();
    assert!(error.contains("record has no field `duration`"), "{error}");
    // A random segment is one of the part.
    let segments = job(&[&column(&format!("{span}\nsegment = {{ seconds = 0.5 }}")), length]);
    let mut starts = Vec::new();
    for id in 0..400 {
        let fields = [("wav", &file[..]), ("offset", &b"2"[..]), ("duration", &b"1.0"[..])];
        let columns = decode(&segments, key(id), &fields).unwrap();
        let found = f32s(&columns[0]);
        assert!(found[0] >= 200.0 && found[49] < 300.0 && found.is_sorted(), "{found:?}");
        assert_eq!(columns[1], 50_i64.to_le_bytes());
        starts.push(found[0]);
    }
    assert!(starts.contains(&200.0) && starts.contains(&250.0), "{starts:?}");
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
fn length_and_rate_are_those_of_the_file_that_is_followed_in_each_sample() {
    let wave = |name: &str| {
        format!("name = \"{name}\"\nfrom = \"{name}\"\ndecode = \"audio\"\nsegment = {{ seconds = 0.1 }}\nrate = 8000")
    };
    let fact = |kind: &str, follows: &str| {
        format!("name = \"{follows}_{kind}\"\nfrom = \"{follows}\"\ndecode = \"{kind}\"\nfollows = \"{follows}\"")
    };
    let [length, rate] = ["audio_length", "audio_rate"];
    // A column comes before the other that it follows, beside others and behind it.
    let columns =
        [fact(length, "a"), fact(length, "b"), wave("a"), wave("b"), fact(length, "c"), fact(rate, "a"), wave("c")];
    let decoder = Decoder::new(&job(&columns.each_ref().map(String::as_str)), CLASSES).unwrap();
    for id in 0..20 {
        let frames = |nth: usize| 10 + nth * 7 + id as usize;
        // Each column gets the same bytes, as from a block.
        let files = [0, 1, 2].map(|nth| Bytes::from(wav(8000, 1, &vec![0.5; frames(nth)])));
        let file = |name: &str| Some(files[usize::from(name.as_bytes()[0] - b'a')].clone().into());
        let mut found = columns.each_ref().map(|column| vec![0; if column.contains("follows") { 8 } else { 3200 }]);
        let mut targets = found.each_mut().map(|place| FieldTarget::Fixed(place));
        decoder.decode_sample(key(id), &file, &mut targets).unwrap();
        let numbers = [0, 1, 4, 5].map(|column: usize| i64::from_le_bytes(found[column][..].try_into().unwrap()));
        assert_eq!(numbers, [frames(0) as i64, frames(1) as i64, frames(2) as i64, 8000]);
    }
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
            "is no WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, AAC, MP4 or Matroska file: it begins with \"hello\"",
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

/// The draws of sample 3 of epoch 1 in a job of seed 17.
fn draws() -> spdl_types::Draw {
    spdl_types::Draw::new(17, 1, 3)
}

#[test]
fn operations_on_samples_are_those_of_the_crate_of_sounds_with_the_draws_of_the_sample() {
    let samples: Vec<f32> = (0..4_000).map(|frame| (frame as f32 * 0.05).sin() / 2.0).collect();
    let file = wav(16_000, 1, &samples);
    let ops = "ops = [{ speed = [0.9, 0.8, 1.1] }, { gain = 6 }, { noise = { snr = [10, 20], p = 0.9 } }]";
    let mut speeds = std::collections::BTreeSet::new();
    for id in 0..40 {
        let mut draw = spdl_types::Draw::new(17, 1, id);
        let speed = [900, 800, 1100][draw.below(3) as usize];
        speeds.insert(speed);
        let resampler = spdl_sound::SoundResampler::new(16_000 * speed, 8_000 * 1000).unwrap();
        let mut expected = vec![0.0; resampler.frames(samples.len())];
        resampler.resample(&samples, &mut expected);
        spdl_sound::operations::gain(&mut expected, draw.between(-6.0, 6.0) as f32);
        if draw.unit() < f64::from(0.9_f32) {
            let decibels = draw.between(10.0, 20.0) as f32;
            let noise = spdl_sound::operations::white_noise(expected.len(), &mut draw);
            let start = spdl_sound::operations::noise_start(noise.len(), expected.len(), &mut draw);
            spdl_sound::operations::add_noise(&mut expected, &noise, start, decibels);
        }
        let decoder = Decoder::new(&job(&[&column(&format!("rate = 8000\n{ops}"))]), CLASSES).unwrap();
        let mut value = Bytes::new();
        let field = |_: &str| Some(Bytes::copy_from_slice(&file).into());
        decoder.decode_sample(key(id), &field, &mut [FieldTarget::Ragged(&mut value)]).unwrap();
        assert_eq!(f32s(&value), expected, "sample {id} at {speed}");
    }
    assert_eq!(speeds.len(), 3);
}

#[test]
fn a_segment_of_a_sound_at_another_speed_is_a_part_of_all_of_it_and_silence_behind_it_stays_silent() {
    let samples: Vec<f32> = (0..4_000).map(|frame| (frame as f32 * 0.05).sin() / 2.0).collect();
    let file = wav(8_000, 1, &samples);
    let length = "name = \"length\"\nfrom = \"wav\"\ndecode = \"audio_length\"\nfollows = \"wave\"";
    let keys =
        "rate = 8000\nops = [{ speed = [2.0] }, { noise = 10 }]\nsegment = { seconds = SECONDS, pick = \"start\" }";
    let of = |seconds: &str| {
        let columns = decode(&job(&[&column(&keys.replace("SECONDS", seconds)), length]), key(3), &[("wav", &file)]);
        let columns = columns.unwrap();
        (f32s(&columns[0]), i64::from_le_bytes(*columns[1].first_chunk().unwrap()))
    };
    let resampler = spdl_sound::SoundResampler::new(2, 1).unwrap();
    let mut whole = vec![0.0; 2_000];
    resampler.resample(&samples, &mut whole);
    let mut draw = draws();
    draw.below(1);
    for (seconds, frames) in [("0.1", 800), ("0.5", 2_000)] {
        let mut expected = whole[..frames].to_vec();
        let mut draw = draw.clone();
        let decibels = draw.between(10.0, 10.0) as f32;
        let noise = spdl_sound::operations::white_noise(frames, &mut draw);
        let start = spdl_sound::operations::noise_start(noise.len(), expected.len(), &mut draw);
        spdl_sound::operations::add_noise(&mut expected, &noise, start, decibels);
        let (found, told) = of(seconds);
        assert_eq!(told, frames as i64);
        assert_eq!(found[..frames], expected);
        assert!(found[frames..].iter().all(|sample| *sample == 0.0));
    }
}

#[test]
fn masks_are_those_of_the_crate_of_sounds_on_the_features_of_the_sample() {
    let samples: Vec<f32> = (0..9_000).map(|frame| (frame as f32 * 0.05).sin() / 2.0).collect();
    let file = wav(8_000, 1, &samples);
    let keys = "rate = 8000\nfeatures = { preset = \"lhotse\", mels = 40 }\n";
    let whole_of = |ops: &str| {
        let decoder = Decoder::new(&job(&[&column(&format!("{keys}{ops}"))]), CLASSES).unwrap();
        let mut value = Bytes::new();
        let field = |_: &str| Some(Bytes::copy_from_slice(&file).into());
        decoder.decode_sample(key(3), &field, &mut [FieldTarget::Ragged(&mut value)]).unwrap();
        f32s(&value)
    };
    let mut expected = whole_of("");
    let found = whole_of("ops = [{ time_mask = { frames = 30, count = 2, value = 1.5 } }, { frequency_mask = 20 }]");
    let mut draw = draws();
    for _ in 0..2 {
        spdl_sound::operations::mask_frames(&mut expected, 40, 30, 1.5, &mut draw);
    }
    let mean = expected.iter().map(|value| f64::from(*value)).sum::<f64>() / expected.len() as f64;
    spdl_sound::operations::mask_bands(&mut expected, 40, 20, mean as f32, &mut draw);
    assert_eq!(found, expected);
}
