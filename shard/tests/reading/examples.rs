//! The example job files are valid, and one of them explains every key.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;
use spdl_job::{
    ArgumentsFile, AudioChannels, AudioKeys, AudioLengthKeys, AudioRateKeys, BadSamples, BoxFormat, BoxLabelsKeys,
    BoxStorage, BoxesKeys, BytesColumn, BytesKeys, CategoryKeys, CenterCrop, ClassesFile, ClipFile, ClipPick, ClipSnap,
    ColumnFile, ColumnKind, CropBox, DEFAULT_BAD_FRACTION, DecodeFile, DefaultFile, DeltaRunFile, DeltasFile,
    DocumentIdsKeys, DocumentLengthsKeys, FeaturesFile, FeaturesPreset, Fill, FunctionFile, Gain, GeometryKeys,
    GlobalLengthsKeys, ImageKeys, ImageOp, ImageSizeKeys, Interpolation, IsPadKeys, JobFile, JobSourceFile,
    JobStageFile, JsonKeys, LabelsKeys, LossMaskKeys, MaskKeys, NoKeys, NumberOrRange, OneHotKeys, OrderFile,
    PositionsKeys, RandomFlip, RandomResizedCrop, Resize, ReturnedFile, ReturnsFile, SegmentFile, SegmentPick,
    ShortVideo, Size, SoundOp, SourceDigest, SpanFile, TensorEncoding, TensorKeys, TextKeys, TokensKeys, ValueKeys,
    VideoKeys, VideoMaskKeys, VideoTimesKeys,
};
use spdl_order::{DatasetFacts, EpochEnd, RedactedSamples, Redaction, WhenDone};
use spdl_types::{DType, Fingerprint, ImageColor, ImageDepth, ImageLayout, Normalise, SampleId};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns all job files that ship: path and text.
fn job_files() -> Vec<(String, String)> {
    ["examples", "k8s/base/jobs", "k8s/overlays/s3/jobs"]
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect()
}

/// Returns a job file with every key that exists: a new field has to be added here, and then explained.
fn with_every_key() -> JobFile {
    let size = Size::Square(1);
    let ops = vec![
        ImageOp::CropBox(CropBox { field: String::new(), margin: 0.0 }),
        ImageOp::RandomResizedCrop(RandomResizedCrop {
            size,
            scale: [0.0; 2],
            ratio: [0.0; 2],
            interpolation: Interpolation::Box,
            antialias: true,
            full_decode: true,
        }),
        ImageOp::Resize(Resize { size, interpolation: Interpolation::Box, antialias: true, full_decode: true }),
        ImageOp::CenterCrop(CenterCrop { size }),
        ImageOp::RandomFlip(RandomFlip { p: 0.0 }),
    ];
    let (layout, normalise) = (Some(ImageLayout::Nhwc), Some(Normalise { mean: vec![0.0; 3], std: vec![1.0; 3] }));
    let (color, background) = (Some(ImageColor::Rgb), Some(Fill([0; 3])));
    let kinds = [
        DecodeFile::Image(ImageKeys {
            ops,
            layout,
            normalise,
            color,
            background,
            depth: Some(ImageDepth::Bits8),
            max_rows: Some(1),
            pictures: Some(1),
        }),
        DecodeFile::Int(NoKeys {}),
        DecodeFile::Json(JsonKeys { path: Some(String::new()) }),
        DecodeFile::Bytes(BytesKeys { max_bytes: Some(1) }),
        DecodeFile::BoxClass(NoKeys {}),
        DecodeFile::Float(NoKeys {}),
        DecodeFile::Bool(NoKeys {}),
        DecodeFile::Text(TextKeys { max_bytes: Some(1) }),
        DecodeFile::Category(CategoryKeys { names: Some(vec![String::new()]) }),
        DecodeFile::Boxes(BoxesKeys {
            follows: Some(String::new()),
            stored_as: Some(BoxStorage::Coco),
            max_rows: Some(1),
            format: Some(BoxFormat::Xyxy),
            normalised: Some(true),
            min_visible: Some(0.0),
            min_size: Some(0.0),
        }),
        DecodeFile::OneHot(OneHotKeys { classes: Some(ClassesFile::Count(1)), names: Some(vec![String::new()]) }),
        DecodeFile::BoxLabels(BoxLabelsKeys {
            follows: Some(String::new()),
            key: Some(String::new()),
            names: Some(vec![String::new()]),
        }),
        DecodeFile::Geometry(GeometryKeys { follows: Some(String::new()) }),
        DecodeFile::ImageSize(ImageSizeKeys { follows: Some(String::new()), after_ops: Some(true) }),
        DecodeFile::Audio(AudioKeys {
            rate: Some(1),
            channels: Some(AudioChannels::First),
            follows: Some(String::new()),
            segment: Some(SegmentFile { seconds: 1.0, pick: Some(SegmentPick::Random) }),
            span: Some(SpanFile { start: Some(String::new()), seconds: Some(String::new()) }),
            max_seconds: Some(1),
            ops: vec![SoundOp::Gain(Gain { decibels: NumberOrRange::Number(1.0), p: 1.0 })],
            features: Some(FeaturesFile {
                preset: FeaturesPreset::Torchaudio,
                mels: Some(1),
                n_fft: Some(2),
                win_length: Some(1),
                hop_length: Some(1),
                power: Some(1),
            }),
        }),
        DecodeFile::AudioLength(AudioLengthKeys { follows: Some(String::new()) }),
        DecodeFile::AudioRate(AudioRateKeys { follows: Some(String::new()) }),
        DecodeFile::Video(VideoKeys {
            clip: Some(ClipFile {
                frames: 1,
                stride: Some(1),
                rate: Some(1.0),
                pick: Some(ClipPick::Start),
                at: Some(String::new()),
                snap: Some(ClipSnap::KeyFrame),
                short: Some(ShortVideo::Bad),
                source_rate: Some(1.0),
            }),
            ..VideoKeys::default()
        }),
        DecodeFile::VideoTimes(VideoTimesKeys { follows: Some(String::new()) }),
        DecodeFile::VideoMask(VideoMaskKeys { follows: Some(String::new()) }),
        DecodeFile::IsPad(IsPadKeys { follows: Some(String::new()) }),
        DecodeFile::Mask(MaskKeys { follows: Some(String::new()), ignore_index: Some(1) }),
        DecodeFile::Tensor(TensorKeys {
            shape: Some(vec![1]),
            max_rows: Some(1),
            encoding: Some(TensorEncoding::Numpy),
            array: Some(String::new()),
        }),
        DecodeFile::Tokens(TokensKeys { vocab: Some(1), max_rows: Some(1) }),
        DecodeFile::Labels(LabelsKeys {
            follows: Some(String::new()),
            shifted: Some(true),
            loss_from: Some(String::new()),
        }),
        DecodeFile::Positions(PositionsKeys { follows: Some(String::new()) }),
        DecodeFile::GlobalLengths(GlobalLengthsKeys { follows: Some(String::new()) }),
        DecodeFile::DocumentLengths(DocumentLengthsKeys { follows: Some(String::new()) }),
        DecodeFile::DocumentIds(DocumentIdsKeys { follows: Some(String::new()) }),
        DecodeFile::LossMask(LossMaskKeys { follows: Some(String::new()), loss_from: Some(String::new()) }),
    ];
    let column = |decode| ColumnFile {
        name: String::new(),
        from: String::new(),
        decode,
        dtype: Some(DType::U8),
        value: ValueKeys {
            path: Some(String::new()),
            default: Some(DefaultFile::Integer(0)),
            classes: Some(ClassesFile::Count(1)),
            deltas: Some(DeltasFile::Run(DeltaRunFile { from: 0, to: 1 })),
        },
        transform: Some(String::new()),
        arguments: Some(ArgumentsFile::default()),
        source_digest: Some(SourceDigest(1)),
        returns: Some(ReturnsFile {
            dtype: Some(DType::U8),
            shape: Some(vec![1]),
            max_rows: Some(1),
            max_bytes: Some(1),
        }),
    };
    JobFile {
        view: None,
        mix: None,
        sequence: None,
        // Of sequences alone.
        cost: None,
        name: String::new(),
        dataset: String::new(),
        source: vec![JobSourceFile {
            name: String::new(),
            dataset: String::new(),
            weight: 1.0,
            max_epochs: Some(1),
            when_done: Some(WhenDone::Stop),
            view: None,
            order: None,
            // Of sequences alone.
            pools: None,
        }],
        total_samples: Some(1),
        total_tokens: Some(1),
        stage: vec![JobStageFile { from: 1, weights: [(String::from("photos"), 1.0)].into() }],
        redaction: vec![Redaction { from: 1, samples: RedactedSamples::new(vec![SampleId(1)]) }],
        seed: 0,
        global_batch: 1,
        epochs: 1,
        epoch_end: Some(EpochEnd::Drop),
        bad_samples: Some(BadSamples::Substitute),
        max_bad_fraction: Some(0.0),
        shuffle: true,
        order: Some(OrderFile { lanes: Some(1), window: Some(1) }),
        column: kinds.map(column).into(),
        function: vec![FunctionFile {
            call: String::new(),
            arguments: Some(ArgumentsFile::default()),
            source_digest: Some(SourceDigest(1)),
            fields: vec![String::new()],
            max_bytes: Some(1),
            columns: vec![String::new()],
            returns: vec![ReturnedFile {
                name: String::new(),
                dtype: Some(DType::U8),
                shape: Some(vec![1]),
                max_rows: Some(1),
                max_bytes: Some(1),
            }],
        }],
    }
}

fn collect_keys(value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            keys.extend(entries.keys().cloned());
            entries.values().for_each(|entry| collect_keys(entry, keys));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect_keys(entry, keys)),
        _ => {}
    }
}

/// Returns whether `word` is in `text` with no letter, digit or underscore beside it.
fn mentions(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|part| part == word)
}

#[test]
fn every_job_file_that_ships_is_valid() {
    let facts = DatasetFacts::new(Fingerprint(1), 1_281_167, 14_000);
    let files = job_files();
    assert!(files.len() >= 5, "{files:?}");
    for (path, text) in files {
        let mut file = JobFile::parse(&text, &path).unwrap_or_else(|error| panic!("{error}"));
        // Submitting a job packs its documents.
        file.sequence.iter_mut().for_each(|sequence| sequence.pools = Some(Fingerprint(2)));
        file.freeze(&facts).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn the_first_example_explains_every_key_and_value() {
    let text = fs::read_to_string(root().join("examples/imagenet-train.toml")).unwrap();
    let mut keys = BTreeSet::new();
    collect_keys(&serde_json::to_value(with_every_key()).unwrap(), &mut keys);
    for (operation, own, _) in ImageOp::CATALOG.iter().chain(SoundOp::CATALOG) {
        keys.insert((*operation).to_owned());
        keys.extend(own.iter().map(|key| (*key).to_owned()));
    }
    assert!(keys.len() > 20, "{keys:?}");
    let values = [
        serde_json::to_value([EpochEnd::Drop, EpochEnd::Pad, EpochEnd::Continuous, EpochEnd::Exact, EpochEnd::Partial]),
        serde_json::to_value([WhenDone::Stop, WhenDone::Reweight, WhenDone::Repeat]),
        serde_json::to_value([BadSamples::Substitute, BadSamples::Mask, BadSamples::Fail]),
        serde_json::to_value(DType::ALL),
        serde_json::to_value([TensorEncoding::Numpy, TensorEncoding::Raw]),
        serde_json::to_value([BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh]),
        serde_json::to_value([BoxStorage::Voc, BoxStorage::Coco]),
        serde_json::to_value([ImageLayout::Nhwc, ImageLayout::Nchw]),
        Ok(with_every_key()
            .column
            .iter()
            .map(|column| serde_json::to_value(column).unwrap()["decode"].clone())
            .collect()),
    ];
    for list in values {
        keys.extend(list.unwrap().as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()));
    }
    let missing: Vec<_> = keys.iter().filter(|key| !mentions(&text, key)).collect();
    assert!(missing.is_empty(), "not explained: {missing:?}");
}

#[test]
fn the_first_example_shows_the_defaults_that_it_states() {
    let text = fs::read_to_string(root().join("examples/imagenet-train.toml")).unwrap();
    let minimal = JobFile::parse(
        "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"c\"\nfrom = \"d\"\ndecode = \"image\"\n\
         ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]",
        "minimal.toml",
    )
    .unwrap();
    let written = JobFile::parse(&text, "imagenet-train.toml").unwrap();
    let ops = |file: &JobFile| match &file.column[0].decode {
        DecodeFile::Image(keys) => keys.ops.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(ops(&minimal), ops(&written));
    for (key, value) in [
        ("(integer, default 0)", minimal.seed.to_string()),
        ("(integer, epochs, default 1)", minimal.epochs.to_string()),
        ("(number in 0..1, default 0.001)", DEFAULT_BAD_FRACTION.to_string()),
        ("(boolean, default true)", minimal.shuffle.to_string()),
        ("(string, default \"drop\")", serde_json::to_string(&minimal.epoch_end()).unwrap()),
        ("(string, default \"substitute\")", serde_json::to_string(&minimal.bad_samples()).unwrap()),
    ] {
        assert!(text.contains(key) && key.ends_with(&format!("default {value})")), "{key}: it is {value}");
    }
    let ragged = JobFile::parse(
        "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"c\"\nfrom = \"d\"\ndecode = \"bytes\"",
        "ragged.toml",
    );
    let columns = ragged.unwrap().check().unwrap();
    let ColumnKind::Bytes(BytesColumn { max_bytes }) = columns[0].kind else { panic!("{columns:?}") };
    assert!(text.contains(&format!("default {max_bytes})")), "{max_bytes}");
}
