//! Trains a small net with candle on the ranks of a launch, validates it after each epoch, and goes on from its checkpoint.
//!
//! ```sh
//! spdl-run --job train.toml --job val.toml -- torchrun --no-python --nproc-per-node 2 train-candle --validate val
//! ```
//!
//! `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` are those of torchrun; the `SPDL_*` variables name coordinator, job and
//! certificates. Each job has a column `image` of pictures of one size, and a column `label` of numbers.

mod checkpoint;
mod net;
mod ranks;

use std::{error::Error, path::PathBuf};

use candle_core::{D, DType, Device, Tensor};
use candle_nn::loss::cross_entropy;
use clap::Parser;
use spdl_client::{Batch, Blocking, Client, Settings, remote::Remote};
use spdl_types::Position;

use crate::{checkpoint::Checkpoint, net::Net, ranks::Ranks};

/// What can go wrong is told to the user, and ends the program.
type Failure = Box<dyn Error>;

/// Trains on the job that `SPDL_JOB` names.
#[derive(Debug, Parser)]
struct Arguments {
    /// Job to validate with after each epoch.
    #[arg(long, value_name = "JOB")]
    validate: Option<String>,
    /// Number of classes: more than the largest label.
    #[arg(long, default_value_t = 16)]
    classes: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.02)]
    rate: f64,
    /// Folder to save to after every `--every` steps, and to go on from where it has a checkpoint.
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Number of steps between two checkpoints.
    #[arg(long, default_value_t = 10)]
    every: u64,
    /// Ends the program after this many steps, as a lost node would.
    #[arg(long, value_name = "STEPS")]
    stop_after: Option<u64>,
}

fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let mut ranks = Ranks::from_env()?;
    let checkpoint = arguments.checkpoint.as_deref().map(Checkpoint::new);

    // Without a runtime of its own, a trainer uses the blocking loader; with one, `connect(...).await` and `next().await`.
    let mut settings = Settings::from_env()?;
    if let Some(state) = checkpoint.as_ref().map(Checkpoint::state).transpose()?.flatten() {
        settings.start = state.into();
    }
    let mut train = Client::builder().settings(settings).connect_blocking(ranks.rank(), ranks.world())?;
    let mut validation = match arguments.validate {
        Some(job) => {
            let builder = Client::builder().settings(Settings::from_env()?).job(job);
            Some(builder.connect_blocking(ranks.rank(), ranks.world())?)
        }
        None => None,
    };

    let mut net = None;
    let mut steps = 0;
    let mut seen = 0;
    while let Some(batch) = train.next_batch()? {
        let net = match &mut net {
            Some(net) => net,
            none => {
                let net = none.insert(Net::new(pixels(&batch)?, arguments.classes)?);
                if let Some(checkpoint) = &checkpoint {
                    checkpoint.load(net)?;
                }
                // All ranks begin with the same weights.
                net.replace_weights(&ranks.mean(&net.weights()?)?)?;
                net
            }
        };
        let Examples { images, labels, valid } = Examples::of(&batch)?;
        // An epoch that is not cut off can end with fewer samples for one rank than for another. What counts is the mean over the samples
        // of all, so each rank gives its sum.
        seen += valid;
        let mut gradients = if valid == 0 {
            vec![0.0; net.weights()?.len()]
        } else {
            net.gradients(&(cross_entropy(&net.forward(&images)?, &labels)? * valid as f64)?)?
        };
        gradients.push(valid as f32);
        let mut mean = ranks.mean(&gradients)?;
        let samples = mean.pop().unwrap_or_default();
        net.step(&mean, arguments.rate / f64::from(samples.max(f32::MIN_POSITIVE)))?;

        let ends_epoch = train.loader().ends_epoch(&batch);
        let epoch = batch.from().epoch;
        // The slot is free again, so that the next batch can come while this rank validates or saves.
        drop(batch);
        steps += 1;
        if let Some(checkpoint) = checkpoint.as_ref().filter(|_| ranks.rank() == 0 && steps % arguments.every == 0) {
            checkpoint.save(net, &train.loader().state())?;
        }
        if arguments.stop_after == Some(steps) {
            return Err(format!("stopped after {steps} steps, as asked").into());
        }
        if let (true, Some(validation)) = (ends_epoch, &mut validation) {
            let (right, all) = validate(net, validation, &mut ranks)?;
            if ranks.rank() == 0 {
                println!("epoch {epoch}: {right} of {all} validation samples are right");
            }
        }
    }
    if let (Some(checkpoint), Some(net), 0) = (&checkpoint, &net, ranks.rank()) {
        checkpoint.save(net, &train.loader().state())?;
    }
    println!("rank {}: {seen} samples, receipt {}", ranks.rank(), train.loader().receipt());
    Ok(())
}

/// Returns how many of the validation samples of all ranks the net is right about, and how many there are.
fn validate(net: &Net, loader: &mut Blocking<Remote>, ranks: &mut Ranks) -> Result<(f32, f32), Failure> {
    loader.go_to(Position::new(0, 0))?;
    let mut counts = [0.0, 0.0];
    while let Some(batch) = loader.next_batch()? {
        if batch.is_empty() {
            continue;
        }
        let Examples { images, labels, valid } = Examples::of(&batch)?;
        if valid == 0 {
            continue;
        }
        let answers = net.forward(&images)?.argmax(D::Minus1)?;
        counts[0] += answers.eq(&labels)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
        counts[1] += valid as f32;
    }
    let mean = ranks.mean(&counts)?;
    let world = ranks.world() as f32;
    Ok(((mean[0] * world).round(), (mean[1] * world).round()))
}

/// Returns the number of values of one picture.
fn pixels(batch: &Batch) -> Result<usize, Failure> {
    let shape = batch.column("image")?.sample_shape().ok_or("the pictures of column `image` have different sizes")?;
    Ok(shape.iter().map(|&length| length as usize).product())
}

/// The samples of a batch as tensors.
struct Examples {
    /// `f32[n, pixels]`, from 0 to 1.
    images: Tensor,
    /// `u32[n]`
    labels: Tensor,
    /// Number of samples, `n`.
    valid: usize,
}

impl Examples {
    /// Copies the samples of a batch. Entries that are not valid are left out: places of an `exact` epoch's last batch that no sample has, and masked samples.
    fn of(batch: &Batch) -> Result<Self, Failure> {
        let (image, label) = (batch.column("image")?, batch.column("label")?);
        let labels_of_all: &[i64] = label.as_slice()?;
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for (index, _) in batch.entries().enumerate().filter(|(_, entry)| entry.is_valid()) {
            images.extend(image.sample::<u8>(index)?.iter().map(|&value| f32::from(value) / 255.0));
            labels.push(u32::try_from(labels_of_all[index])?);
        }
        let valid = labels.len();
        let images = Tensor::from_vec(images, (valid, pixels(batch)?), &Device::Cpu)?;
        Ok(Self { images, labels: Tensor::from_vec(labels, valid, &Device::Cpu)?, valid })
    }
}
