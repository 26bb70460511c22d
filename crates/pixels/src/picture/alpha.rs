//! Transparent pixels on a background.

/// What the sample beside the colour of a pixel means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Alpha {
    /// Opacity of the colour.
    #[default]
    Straight,
    /// Opacity by which the colour is already multiplied.
    Premultiplied,
    /// Something other than opacity.
    Unspecified,
}

impl Alpha {
    /// Returns the pixel blended with a background of this colour, rounded.
    pub(crate) fn over(self, background: [u8; 3], color: [u8; 3], alpha: u8) -> [u8; 3] {
        let (over, under) = (u32::from(alpha), u32::from(255 - alpha));
        std::array::from_fn(|channel| {
            let (color, background) = (u32::from(color[channel]), u32::from(background[channel]));
            match self {
                Self::Straight => ((color * over + background * under + 127) / 255) as u8,
                Self::Premultiplied => (color + (background * under + 127) / 255).min(255) as u8,
                Self::Unspecified => color as u8,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_shows_by_as_much_as_a_pixel_is_transparent() {
        let (white, color) = ([255; 3], [200, 0, 7]);
        for (alpha, expected) in [(255, color), (0, white), (51, [244, 204, 205])] {
            assert_eq!(Alpha::Straight.over(white, color, alpha), expected);
        }
        assert_eq!(Alpha::Premultiplied.over(white, [40, 0, 1], 51), [244, 204, 205]);
        assert_eq!(Alpha::Premultiplied.over(white, white, 0), white, "a colour beyond its opacity is cut off");
        assert_eq!(Alpha::Unspecified.over(white, color, 0), color);
    }
}
