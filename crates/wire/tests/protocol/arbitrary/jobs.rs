//! Proptest strategies for jobs, with their columns and operations.

use std::num::NonZeroU32;

use proptest::{collection::vec, option, prelude::*};
use spdl_job::{
    Arguments, AudioChannels, AudioColumn, AudioFeatures, AudioLengthColumn, AudioRateColumn, AudioSegment, AudioSpan,
    BadSamples, BoolColumn, BoxClassColumn, BoxFormat, BoxLabelsColumn, BoxStorage, BoxesColumn, BytesColumn, Callable,
    CategoryColumn, ClipPick, ClipSnap, ClipStep, ColorJitter, Column, ColumnKind, ColumnValue, DefaultValue,
    DocumentIdsColumn, DocumentLengthsColumn, FeaturesKind, Fill, FloatColumn, FrameDrift, FrequencyMask, FunctionCall,
    Gain, GeometryColumn, GlobalLengthsColumn, ImageColumn, ImageOp, ImageSizeColumn, IntColumn, Interpolation,
    IsPadColumn, Job, JobSource, JsonColumn, LabelsColumn, LossMaskColumn, MaskColumn, MeasuredSize, Mix, Noise,
    NumberOrRange, OneHotColumn, PackedSource, PictureList, PositionsColumn, RandomResizedCrop, ReturnedColumn,
    ReturnedValue, Returns, Reverb, SampleCost, SegmentPick, Sequence, ShortVideo, Size, SizeSource, SoundDataset,
    SoundOp, SourceDigest, Speed, TensorColumn, TensorEncoding, TextColumn, TimeMask, TokensColumn, Transform,
    VideoClip, VideoColumn, VideoMaskColumn, VideoTimesColumn,
};
use spdl_order::{BlendStage, BucketParams, EpochEnd, MixParams, OrderParams, RedactedSamples, Redaction, WhenDone};
use spdl_sequence::{LongDocument, PackMethod};
use spdl_types::{DType, Fingerprint, ImageColor, ImageDepth, ImageLayout, Normalise, SampleId};

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,24}"
}

fn float() -> impl Strategy<Value = f32> {
    -1e6_f32..1e6
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![any::<u32>().prop_map(Size::Square), any::<[u32; 2]>().prop_map(Size::HeightWidth)]
}

fn spread() -> impl Strategy<Value = NumberOrRange> {
    prop_oneof![float().prop_map(NumberOrRange::Number), [float(), float()].prop_map(NumberOrRange::Range),]
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    use Interpolation::{Bicubic, Bilinear, Box, Hamming, Lanczos, Nearest};
    proptest::sample::select(&[Nearest, Bilinear, Bicubic, Lanczos, Box, Hamming][..])
}

fn sounds() -> impl Strategy<Value = SoundDataset> {
    (text(), option::of(text()), option::of(any::<u128>()), option::of(any::<u64>())).prop_map(
        |(url, from, fingerprint, samples)| SoundDataset {
            url,
            from,
            fingerprint: fingerprint.map(Fingerprint),
            samples,
        },
    )
}

fn sound_op() -> impl Strategy<Value = SoundOp> {
    prop_oneof![
        (spread(), float()).prop_map(|(decibels, p)| SoundOp::Gain(Gain { decibels, p })),
        (spread(), option::of(sounds()), float()).prop_map(|(snr, dataset, p)| SoundOp::Noise(Noise {
            snr,
            dataset,
            p
        })),
        (sounds(), float()).prop_map(|(dataset, p)| SoundOp::Reverb(Reverb { dataset, p })),
        vec(float(), 0..4).prop_map(|factors| SoundOp::Speed(Speed { factors })),
        (any::<u32>(), any::<u32>(), option::of(float()))
            .prop_map(|(frames, count, value)| SoundOp::TimeMask(TimeMask { frames, count, value })),
        (any::<u32>(), any::<u32>(), option::of(float()))
            .prop_map(|(bands, count, value)| SoundOp::FrequencyMask(FrequencyMask { bands, count, value })),
    ]
}

fn op() -> impl Strategy<Value = ImageOp> {
    prop_oneof![
        proptest::sample::select(ImageOp::examples()),
        (size(), [float(), float()], [float(), float()], interpolation(), any::<[bool; 2]>()).prop_map(
            |(size, scale, ratio, interpolation, [antialias, full_decode])| {
                ImageOp::RandomResizedCrop(RandomResizedCrop {
                    size,
                    scale,
                    ratio,
                    interpolation,
                    antialias,
                    full_decode,
                })
            }
        ),
        (option::of(spread()), option::of(spread()), option::of(spread()), option::of(spread())).prop_map(
            |(brightness, contrast, saturation, hue)| {
                ImageOp::ColorJitter(ColorJitter { brightness, contrast, saturation, hue })
            }
        ),
    ]
}

fn kind() -> impl Strategy<Value = ColumnKind> {
    let layout = prop_oneof![Just(ImageLayout::Nhwc), Just(ImageLayout::Nchw)];
    let normalise = option::of((vec(float(), 0..5), vec(float(), 0..5)))
        .prop_map(|pair| pair.map(|(mean, std)| Normalise { mean, std }));
    let color =
        prop_oneof![Just(ImageColor::Rgb), Just(ImageColor::Bgr), Just(ImageColor::Gray), Just(ImageColor::Rgba)];
    let depth = option::of(prop_oneof![Just(ImageDepth::Bits16), Just(ImageDepth::Bits32)]);
    let background = option::of(any::<[u8; 3]>().prop_map(Fill));
    let list =
        option::of(any::<(bool, u32)>().prop_map(|(is_exact, count)| {
            if is_exact { PictureList::Exactly(count) } else { PictureList::UpTo(count) }
        }));
    let encoding = prop_oneof![Just(TensorEncoding::Numpy), Just(TensorEncoding::Raw)];
    prop_oneof![
        (vec(op(), 0..4), layout, normalise, any::<[u32; 2]>(), color, background, depth, list).prop_map(
            |(ops, layout, normalise, size, color, background, depth, list)| {
                ColumnKind::Image(ImageColumn { ops, layout, normalise, size, color, background, depth, list })
            }
        ),
        Just(ColumnKind::Int(IntColumn)),
        vec(text(), 0..3).prop_map(|path| ColumnKind::Json(JsonColumn { path })),
        any::<u32>().prop_map(|max_bytes| ColumnKind::Bytes(BytesColumn { max_bytes })),
        Just(ColumnKind::BoxClass(BoxClassColumn)),
        Just(ColumnKind::Float(FloatColumn)),
        Just(ColumnKind::Bool(BoolColumn)),
        [option::of(any::<u32>()), option::of(any::<u32>()), option::of(any::<u32>())]
            .prop_map(|[vocab, max_rows, seq_len]| ColumnKind::Tokens(TokensColumn { vocab, max_rows, seq_len })),
        follower(),
        any::<u32>().prop_map(|max_bytes| ColumnKind::Text(TextColumn(BytesColumn { max_bytes }))),
        option::of(vec(text(), 0..4)).prop_map(|names| ColumnKind::Category(CategoryColumn { names })),
        (any::<u32>(), option::of(vec(text(), 0..4)), option::of(vec(text(), 0..4)))
            .prop_map(|(classes, names, listed)| ColumnKind::OneHot(OneHotColumn { classes, names, listed })),
        (text(), 0..5_usize, any::<u32>(), float(), float()).prop_map(
            |(follows, number, max_rows, min_visible, min_size)| {
                use BoxStorage::*;
                let format = [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh][number % 3];
                ColumnKind::Boxes(BoxesColumn {
                    follows,
                    stored_as: [Voc, Coco, Xyxy, Xywh, Cxcywh][number],
                    max_rows,
                    format,
                    normalised: number % 2 == 0,
                    min_visible,
                    min_size,
                })
            }
        ),
        (text(), text(), option::of(vec(text(), 0..4)), any::<u32>()).prop_map(|(follows, key, names, max_rows)| {
            ColumnKind::BoxLabels(BoxLabelsColumn { follows, key, names, max_rows })
        }),
        text().prop_map(|follows| ColumnKind::Geometry(GeometryColumn { follows })),
        (text(), any::<bool>())
            .prop_map(|(follows, after_ops)| ColumnKind::ImageSize(ImageSizeColumn { follows, after_ops })),
        (
            option::of(any::<u32>()),
            any::<u16>(),
            option::of((any::<u32>(), 0..3_usize)),
            option::of((option::of(text()), option::of(text()))),
            any::<u32>(),
            vec(sound_op(), 0..3),
            option::of((any::<[u32; 3]>(), any::<u8>(), any::<u32>())),
            option::of(text()),
        )
            .prop_map(|(rate, channels, segment, span, max_frames, ops, features, follows)| {
                let pick = |nth: usize| [SegmentPick::Random, SegmentPick::Start, SegmentPick::Middle][nth];
                let segment = segment.map(|(frames, nth)| AudioSegment { frames, pick: pick(nth) });
                let channels = match channels {
                    0 => AudioChannels::Mean,
                    1 => AudioChannels::First,
                    count => AudioChannels::Count(count),
                };
                let features = features.map(|([n_fft, win_length, hop_length], power, mels)| AudioFeatures {
                    kind: match power {
                        0 => FeaturesKind::Whisper,
                        3 => FeaturesKind::Kaldi,
                        4 => FeaturesKind::Lhotse,
                        5 => FeaturesKind::Nemo,
                        power => FeaturesKind::Torchaudio { n_fft, win_length, hop_length, power },
                    },
                    mels,
                });
                let span = span.map(|(start, seconds)| AudioSpan { start, seconds });
                ColumnKind::Audio(AudioColumn { rate, channels, follows, segment, span, max_frames, ops, features })
            }),
        text().prop_map(|follows| ColumnKind::AudioLength(AudioLengthColumn { follows })),
        (text(), vec(any::<i32>(), 0..3))
            .prop_map(|(follows, places)| ColumnKind::IsPad(IsPadColumn { follows, places })),
        text().prop_map(|follows| ColumnKind::AudioRate(AudioRateColumn { follows })),
        video().prop_map(ColumnKind::Video),
        (text(), any::<u32>(), any::<bool>()).prop_map(|(follows, frames, is_all)| {
            ColumnKind::VideoTimes(VideoTimesColumn { follows, frames, is_all })
        }),
        (text(), any::<u32>(), any::<bool>())
            .prop_map(|(follows, frames, is_all)| ColumnKind::VideoMask(VideoMaskColumn { follows, frames, is_all })),
        (text(), any::<u16>(), any::<[u32; 2]>())
            .prop_map(|(follows, ignore_index, size)| { ColumnKind::Mask(MaskColumn { follows, ignore_index, size }) }),
        (function_call(), any::<u32>())
            .prop_map(|(call, number)| ColumnKind::Returned(ReturnedColumn { call, number })),
        (vec(any::<u32>(), 0..4), option::of(any::<u32>()), encoding, option::of(text())).prop_map(
            |(shape, max_rows, encoding, array)| ColumnKind::Tensor(TensorColumn { shape, max_rows, encoding, array })
        ),
    ]
}

fn video() -> impl Strategy<Value = VideoColumn> {
    let ints = (any::<[u32; 2]>(), option::of(any::<u32>()));
    let of_clip = (0..5_usize, any::<bool>(), option::of(text()));
    let parts = (ints, any::<bool>(), of_clip, any::<bool>(), vec(op(), 0..3), any::<[u32; 2]>());
    parts.prop_map(|(([frames, step], source_millirate), is_rate, (nth, is_exact, at), is_strict, ops, size)| {
        let step = if is_rate { ClipStep::Millirate(step) } else { ClipStep::Stride(step) };
        let pick = [ClipPick::Random, ClipPick::Start, ClipPick::Middle, ClipPick::Uniform, ClipPick::All][nth];
        let snap = if is_exact { ClipSnap::Exact } else { ClipSnap::KeyFrame };
        let short = if is_strict { ShortVideo::Bad } else { ShortVideo::RepeatLast };
        let clip = VideoClip { frames, step, pick, short, source_millirate, snap, at };
        let drift = if is_strict { FrameDrift::Fail } else { FrameDrift::Nearest };
        let (clip, drift) = if frames % 2 == 0 { (Some(clip), FrameDrift::Fail) } else { (None, drift) };
        VideoColumn { clip, drift, each: ImageColumn { ops, size, ..ImageColumn::default() } }
    })
}

/// A column that follows one of tokens.
fn follower() -> impl Strategy<Value = ColumnKind> {
    let parts = (0..6_u32, text(), any::<bool>(), option::of(text()), any::<u32>());
    parts.prop_map(|(kind, follows, shifted, loss_from, seq_len)| match kind {
        0 => ColumnKind::Labels(LabelsColumn { follows, shifted, loss_from, seq_len }),
        1 => ColumnKind::Positions(PositionsColumn { follows, seq_len }),
        2 => ColumnKind::DocumentLengths(DocumentLengthsColumn { follows, seq_len }),
        3 => ColumnKind::DocumentIds(DocumentIdsColumn { follows, seq_len }),
        4 => ColumnKind::GlobalLengths(GlobalLengthsColumn { follows, seq_len }),
        _ => ColumnKind::LossMask(LossMaskColumn { follows, loss_from, seq_len }),
    })
}

fn cost() -> impl Strategy<Value = SampleCost> {
    let of = proptest::sample::select(&[SizeSource::Pixels, SizeSource::Seconds, SizeSource::Field][..]);
    let sizes = option::of(any::<u128>().prop_map(Fingerprint));
    let bucket = option::of(any::<(u32, u32, bool)>().prop_map(|(window, batch, is_continuous)| BucketParams {
        window,
        batch,
        is_continuous,
    }));
    let measured = option::of((of, sizes, bucket).prop_map(|(of, sizes, bucket)| MeasuredSize { of, sizes, bucket }));
    (any::<u32>(), any::<u32>(), any::<u32>(), measured).prop_map(|(linear, quadratic, within, measured)| SampleCost {
        linear,
        quadratic,
        within: NonZeroU32::new(within),
        measured,
    })
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let long = proptest::sample::select(&[LongDocument::Split, LongDocument::Truncate, LongDocument::Drop][..]);
    let packing =
        prop_oneof![
            (long, any::<u32>(), option::of(any::<u32>()))
                .prop_map(|(long, align, max_documents)| PackMethod::BestFit { align, max_documents, long }),
            Just(PackMethod::Chunk),
        ];
    let ids = [option::of(any::<u32>()), option::of(any::<u32>())];
    let pools = any::<u128>().prop_map(Fingerprint);
    (any::<[u32; 2]>(), packing, any::<[u64; 3]>(), pools, ids, any::<u32>(), any::<[bool; 2]>()).prop_map(
        |(
            [version, seq_len],
            packing,
            [pool_tokens, documents, tokens],
            pools,
            [bos, eos],
            pad,
            [cross_documents, eos_in_loss],
        )| Sequence {
            version,
            seq_len,
            packing,
            pool_tokens,
            pools,
            documents,
            tokens,
            cross_documents,
            bos,
            eos,
            pad,
            eos_in_loss,
        },
    )
}

fn returns() -> impl Strategy<Value = Returns> {
    prop_oneof![
        vec(any::<u32>(), 0..4).prop_map(|shape| Returns::Fixed { shape }),
        any::<u32>().prop_map(|max_bytes| Returns::Ragged { max_bytes }),
        (vec(any::<u32>(), 0..4), any::<u32>()).prop_map(|(row, max_rows)| Returns::Rows { row, max_rows }),
    ]
}

fn callable() -> impl Strategy<Value = Callable> {
    let arguments = prop_oneof![Just(String::new()), text()].prop_map(Arguments::from_text);
    let source = option::of(any::<u128>().prop_map(SourceDigest));
    (text(), arguments, source).prop_map(|(name, arguments, source)| Callable { name, arguments, source })
}

fn function_call() -> impl Strategy<Value = FunctionCall> {
    let returned = (text(), dtype(), returns()).prop_map(|(name, dtype, shape)| ReturnedValue { name, dtype, shape });
    let taken = text().prop_map(|name| Column::new(&name, "x", ColumnKind::Int(IntColumn), DType::I32));
    (callable(), vec(text(), 0..3), any::<u32>(), vec(taken, 0..3), vec(returned, 0..3)).prop_map(
        |(function, fields, max_bytes, columns, returns)| FunctionCall {
            function,
            fields,
            max_bytes,
            columns,
            returns,
        },
    )
}

fn transform() -> impl Strategy<Value = Transform> {
    (callable(), dtype(), returns()).prop_map(|(function, takes, returns)| Transform { function, takes, returns })
}

fn dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL)
}

fn column() -> impl Strategy<Value = Column> {
    let transform = prop_oneof![4 => Just(None), 1 => transform().prop_map(Some)];
    (text(), vec(text(), 0..3), kind(), dtype(), value(), transform)
        .prop_map(|(name, from, kind, dtype, value, transform)| Column { name, from, kind, dtype, value, transform })
}

fn value() -> impl Strategy<Value = ColumnValue> {
    let default = prop_oneof![
        any::<bool>().prop_map(DefaultValue::Bool),
        text().prop_map(DefaultValue::Number),
        text().prop_map(DefaultValue::Text),
    ];
    (vec(text(), 0..3), option::of(default), option::of(vec(text(), 0..3)), vec(any::<i32>(), 0..3))
        .prop_map(|(path, default, classes, deltas)| ColumnValue { path, default, classes, deltas })
}

fn order() -> impl Strategy<Value = OrderParams> {
    (any::<u32>(), any::<u32>(), any::<u64>(), any::<bool>())
        .prop_map(|(version, lanes, window, shuffle)| OrderParams { version, lanes, window, shuffle })
}

fn mix() -> impl Strategy<Value = Mix> {
    let numbers = (option::of(0.0..9.0), option::of(0.0..9.0), 0.0..1.0, 0.0..1.0, any::<u32>());
    (vec(text(), 0..3), numbers).prop_map(|(columns, (mixup, cutmix, p, cutmix_p, distance))| Mix {
        columns,
        params: MixParams { mixup, cutmix, p, cutmix_p, distance },
    })
}

fn source() -> impl Strategy<Value = JobSource> {
    let names = (text(), text(), any::<u128>(), option::of(any::<u128>()));
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>(), option::of(any::<u32>()));
    let whens = prop_oneof![Just(WhenDone::Stop), Just(WhenDone::Reweight), Just(WhenDone::Repeat)];
    let packed = (any::<u128>(), any::<u64>(), any::<u64>());
    let packed =
        packed.prop_map(|(pools, documents, tokens)| PackedSource { pools: Fingerprint(pools), documents, tokens });
    let all = (names, numbers, option::of(whens), option::of(packed));
    all.prop_map(|(names, (samples, ids, weight, lanes, window, max_epochs), when_done, packed)| JobSource {
        name: names.0,
        dataset: names.1,
        dataset_fingerprint: Fingerprint(names.2),
        view: names.3.map(Fingerprint),
        samples,
        ids,
        weight,
        lanes,
        window,
        max_epochs,
        when_done,
        packed,
    })
}

fn stage() -> impl Strategy<Value = BlendStage> {
    (any::<u64>(), vec(any::<u32>(), 0..3)).prop_map(|(from, weights)| BlendStage { from, weights })
}

fn redaction() -> impl Strategy<Value = Redaction> {
    let ids = vec(0..1_u64 << 62, 0..9);
    (any::<u64>(), ids).prop_map(|(from, ids)| Redaction {
        from,
        samples: RedactedSamples::new(ids.into_iter().map(SampleId).collect()),
    })
}

pub(super) fn job() -> impl Strategy<Value = Job> {
    let ends = prop_oneof![
        Just(EpochEnd::Drop),
        Just(EpochEnd::Pad),
        Just(EpochEnd::Continuous),
        Just(EpochEnd::Exact),
        Just(EpochEnd::Partial)
    ];
    let bad = prop_oneof![Just(BadSamples::Substitute), Just(BadSamples::Mask), Just(BadSamples::Fail)];
    let names = (text(), text(), any::<u128>(), any::<u64>(), any::<u64>());
    let numbers = (any::<u32>(), any::<u64>(), ends, bad, 0.0..1.0_f64, option::of(cost()), option::of(any::<u64>()));
    let changes = (vec(stage(), 0..3), vec(redaction(), 0..3), vec(any::<u128>().prop_map(Fingerprint), 0..3));
    let parts = (option::of(any::<u128>()), option::of(mix()), option::of(sequence()), vec(source(), 0..3), changes);
    (names, numbers, order(), vec(column(), 0..4), parts).prop_map(
        |(names, numbers, order, columns, (view, mix, sequence, sources, (stages, redactions, earlier)))| Job {
            name: names.0,
            dataset: names.1,
            dataset_fingerprint: Fingerprint(names.2),
            view: view.map(Fingerprint),
            samples: names.3,
            seed: names.4,
            global_batch: numbers.0,
            epochs: numbers.1,
            total_samples: numbers.6,
            epoch_end: numbers.2,
            bad_samples: numbers.3,
            max_bad_fraction: numbers.4,
            cost: numbers.5,
            order,
            mix,
            sequence: sequence.map(Box::new),
            sources,
            stages,
            redactions,
            earlier,
            columns,
        },
    )
}
