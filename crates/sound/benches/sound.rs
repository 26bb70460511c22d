//! The side of ours in `benches/sound/run`, which measures it beside other libraries in turns.
//!
//! Reads a command a line from standard input, does it, and answers with a line: the CPU seconds of each round.
//!
//! ```text
//! resample FROM TO INPUT OUTPUT ROUNDS       files of f32 samples, little endian
//! features whisper MELS INPUT OUTPUT ROUNDS  and in place of `whisper MELS`: `nemo MELS`, `kaldi MELS FULL_SCALE` and
//!                                            `torchaudio N_FFT WIN HOP MELS POWER`; the sound has 16,000 samples a second
//! ```

use std::{error::Error, fs, io, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use spdl_sound::{FeaturePreset, MelFeatures, SoundResampler};

fn main() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["resample", from, to, input, output, rounds] => {
                let input = read(input)?;
                let resampler = SoundResampler::new(from.parse()?, to.parse()?)?;
                let mut out = vec![0.0; resampler.frames(input.len())];
                let seconds = measure(rounds.parse()?, || resampler.resample(&input, &mut out));
                write(output, &out)?;
                println!("{seconds}");
            }
            ["features", ref preset @ .., input, output, rounds] => {
                let preset = match *preset {
                    ["whisper", mels] => FeaturePreset::Whisper { mels: mels.parse()? },
                    ["nemo", mels] => FeaturePreset::Nemo { mels: mels.parse()? },
                    ["kaldi", mels, scale] => FeaturePreset::Kaldi { mels: mels.parse()?, full_scale: scale.parse()? },
                    ["torchaudio", n_fft, win, hop, mels, power] => FeaturePreset::Torchaudio {
                        n_fft: n_fft.parse()?,
                        win_length: win.parse()?,
                        hop_length: hop.parse()?,
                        mels: mels.parse()?,
                        power: power.parse()?,
                    },
                    _ => return Err(format!("unknown features `{line}`").into()),
                };
                let input = read(input)?;
                let features = MelFeatures::new(&preset, 16_000)?;
                let mut out = vec![0.0; features.frames(input.len()) * features.mels()];
                let seconds = measure(rounds.parse()?, || features.compute(&input, &mut out));
                write(output, &out)?;
                println!("{seconds}");
            }
            _ => {
                return Err(
                    format!("unknown command `{line}`: the first lines of sound.rs list those there are").into()
                );
            }
        }
    }
    Ok(())
}

/// Does something several times and returns the CPU seconds of each time.
fn measure(rounds: usize, mut work: impl FnMut()) -> String {
    let seconds: Vec<String> = (0..rounds)
        .map(|_| {
            let begun = cpu_time();
            work();
            format!("{:.9}", (cpu_time() - begun).as_secs_f64())
        })
        .collect();
    seconds.join(" ")
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn read(path: &str) -> io::Result<Vec<f32>> {
    Ok(fs::read(path)?.as_chunks().0.iter().map(|sample| f32::from_le_bytes(*sample)).collect())
}

fn write(path: &str, samples: &[f32]) -> io::Result<()> {
    fs::write(path, samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
}
