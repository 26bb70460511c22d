//! Operations of a job on decoded pictures: their parameters come from users, and the sizes of pictures from datasets.

use spdl_job::ImageOp;
use spdl_operations::{OperationScratch, RgbPicture};
use spdl_worker::decode::{PictureLimits, PictureOps};

use crate::input::FuzzInput;

/// The longest list that is applied: with more operations, a case takes too long.
const MAX_TEXT_BYTES: usize = 300;
/// Pixels that a picture may have between operations.
const LIMITS: PictureLimits = PictureLimits { side_pixels: 16_384, pixels: 1 << 15 };

/// Checks that operations which a job accepts give a whole picture within the limits, or are refused, and give the same with
/// buffers that were used before.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let size = [input.byte(), input.byte()].map(|side| u32::from(side).max(1));
    let (epoch, id, noise) = (input.byte().into(), input.byte().into(), usize::from(input.byte()));
    let Ok(text) = std::str::from_utf8(input.0) else { return };
    if text.len() > MAX_TEXT_BYTES {
        return;
    }
    let Ok(mut table) = toml::from_str::<toml::Table>(text) else { return };
    let Some(Ok(ops)) = table.remove("ops").map(|ops| ImageOp::read_list(ops, "ops")) else { return };
    let ops = PictureOps::new(ops, 17);
    let pixels: Vec<u8> = (0..(size[0] * size[1] * 3) as usize).map(|at| (at * noise + at / 7) as u8).collect();
    let mut scratch = OperationScratch::default();
    let mut apply = || {
        let mut picture = RgbPicture { pixels: pixels.as_slice().into(), size };
        let outcome = ops.apply([epoch, id], &mut picture, &mut scratch, LIMITS);
        outcome.is_ok().then(|| (picture.pixels.into_owned(), picture.size))
    };
    let first = apply();
    if let Some((pixels, [width, height])) = &first {
        assert!(u64::from(*width) * u64::from(*height) <= LIMITS.pixels, "{width}x{height}");
        assert_eq!(pixels.len() as u64, u64::from(*width) * u64::from(*height) * 3);
    }
    assert!(apply() == first, "{text} of {size:?}");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let examples = ImageOp::CATALOG.iter().map(|(name, _, example)| format!("{{{name}={example}}}"));
    [
        "{random_resized_crop={size=[9,40],scale=[0.1,1.0]}},\"random_flip\",{color_jitter={brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1}}",
        "{gaussian_blur={kernel_size=23,sigma=[0.1,2]}},{random_erasing={p=1,value=[1,2,3]}},{random_adjust_sharpness={sharpness_factor=2,p=1}}",
        "{random_rotation={degrees=30,expand=true,interpolation=\"bilinear\",fill=9}},{center_crop=50},{random_equalize=1}",
        "{random_affine={degrees=9,translate=[0.1,0.2],scale=[0.5,2],shear=5}},{random_perspective={distortion_scale=0.7,p=1}}",
        "{random_crop={size=20,padding=[1,2,3,4],padding_mode=\"reflect\",pad_if_needed=true}},{letterbox={size=[9,64],fill=114}}",
        "{rand_augment={num_ops=3,magnitude=30}},{trivial_augment_wide={num_magnitude_bins=5}},{resize=100},{random_posterize=3}",
        "{random_apply={transforms=[{random_choice=[\"grayscale\",{pad=3}]},{random_solarize=9}],p=0.9}},\"random_vertical_flip\"",
        "{aug_mix={severity=9,mixture_width=2,alpha=0.3}},{aug_mix={chain_depth=4,all_ops=false,interpolation=\"nearest\",fill=9}}",
        "{resize={size=[9,40],interpolation=\"lanczos\"}},{random_resized_crop={size=7,interpolation=\"box\"}},{letterbox={size=[30,9],interpolation=\"bicubic\"}},{resize={size=5,antialias=false}}",
        "{resize={size=[300,2],interpolation=\"bicubic\"}},{resize={size=3,interpolation=\"nearest\"}},{resize={size=[1,50],interpolation=\"hamming\"}}",
        "{random_invert=1},{five_crop=[9,7]}",
        "{resize=90},{ten_crop={size=40,vertical_flip=true}}",
        "\"grayscale\",{random_grayscale=1},{random_invert=1},{random_autocontrast=1},{pad={padding=5,padding_mode=\"symmetric\"}}",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(examples)
    .flat_map(|ops| [[64, 48, 1, 2, 37], [1, 255, 3, 4, 91]].map(|start| [&start[..], b"ops=[", ops.as_bytes(), b"]"].concat()))
    .collect()
}
