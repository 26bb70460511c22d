//! What this crate computes of speech, beside what torchaudio and other libraries do: `golden/README.md`.

use std::{fs, path::PathBuf};

use spdl_sound::{FeaturePreset, MelFeatures, SoundResampler};

fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn speech() -> Vec<f32> {
    read("speech.s16").as_chunks().0.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32768.0).collect()
}

fn golden(name: &str) -> Vec<f32> {
    read(&format!("{name}.f32")).as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Asserts that values agree, and that they are values that can differ.
fn assert_agree(what: &str, ours: &[f32], theirs: &[f32], within: f32) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let greatest = theirs.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(greatest > 1e-2, "{what}: the golden values are {greatest} at most");
    for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((ours - theirs).abs() <= within, "{what}: value {place} is {ours}, and {theirs} elsewhere");
    }
}

fn features(preset: &FeaturePreset, samples: &[f32]) -> Vec<f32> {
    let features = MelFeatures::new(preset, 16_000).unwrap();
    let mut out = vec![0.0; features.frames(samples.len()) * features.mels()];
    features.compute(samples, &mut out);
    out
}

#[test]
fn resampled_speech_is_that_of_torchaudio() {
    let samples = &speech()[2000..][..300];
    let theirs = golden("resample");
    let mut rest = &theirs[..];
    for from in [8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000] {
        for to in [16_000, 24_000, 44_100] {
            let resampler = SoundResampler::new(from, to).unwrap();
            let mut ours = vec![0.0; resampler.frames(samples.len())];
            resampler.resample(samples, &mut ours);
            let (theirs, later) = rest.split_at(ours.len());
            // Where the rates have a small common divisor, torchaudio's weights have an error of this size, of computing them in 32 bits.
            assert_agree(&format!("{from} to {to}"), &ours, theirs, 1e-5);
            rest = later;
        }
    }
    assert!(rest.is_empty(), "{} values are left", rest.len());
}

#[test]
fn features_for_whisper_are_those_of_transformers() {
    let mut samples = speech();
    let frames = samples.len() / 160;
    samples.resize(480_000, 0.0);
    for mels in [80, 128] {
        let ours = features(&FeaturePreset::Whisper { mels }, &samples);
        assert_eq!(ours.len(), 3000 * mels);
        assert_agree(&format!("whisper-{mels}"), &ours[..frames * mels], &golden(&format!("whisper-{mels}")), 1e-4);
    }
}

#[test]
fn features_of_kaldi_are_those_of_torchaudio() {
    let ours = features(&FeaturePreset::Kaldi { mels: 80, full_scale: 32_768.0 }, &speech());
    assert_agree("kaldi", &ours, &golden("kaldi"), 1e-3);
}

#[test]
fn features_of_nemo_are_those_of_transformers() {
    assert_agree("nemo", &features(&FeaturePreset::Nemo { mels: 80 }, &speech()), &golden("nemo"), 1e-4);
}

#[test]
fn mel_spectrograms_are_those_of_torchaudio() {
    let preset = FeaturePreset::Torchaudio { n_fft: 400, win_length: 400, hop_length: 200, mels: 128, power: 2 };
    let theirs = golden("torchaudio");
    let greatest = theirs.iter().copied().fold(0.0, f32::max);
    // The values are energies: what is small beside the greatest is the rounding of it.
    assert_agree("torchaudio", &features(&preset, &speech()), &theirs, 1e-5 * greatest);
}

#[test]
fn sound_without_samples_has_no_frames_and_one_sample_makes_no_error() {
    for preset in [
        FeaturePreset::Whisper { mels: 80 },
        FeaturePreset::Kaldi { mels: 80, full_scale: 1.0 },
        FeaturePreset::Nemo { mels: 80 },
        FeaturePreset::Torchaudio { n_fft: 400, win_length: 400, hop_length: 200, mels: 128, power: 1 },
    ] {
        assert_eq!(features(&preset, &[]), [0.0; 0]);
        for samples in [1, 2, 159, 160, 200, 201, 400] {
            let found = features(&preset, &vec![0.25; samples]);
            assert!(found.iter().all(|value| value.is_finite()), "{preset:?} of {samples} samples");
        }
    }
}
