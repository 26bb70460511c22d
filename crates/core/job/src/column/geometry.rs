//! The kind `geometry`: where the pixels of an `image` column's picture come from.

use super::kind::{followed_picture, follower};
use spdl_types::SampleShape;

follower! {
    /// The matrix from places in the result of an `image` column to places in the upright picture.
    "geometry": GeometryKeys => GeometryColumn follows "image", " that it is of", followed_picture;
    reads_field = true;
    dtypes = [F32, F64];
    shape = |_| SampleShape::Fixed(vec![3, 3]);
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobError};

    fn job(geometry: &str) -> Result<Job, JobError> {
        crate::testing::job_of(&format!(
            "[[column]]\nname = \"geometry\"\nfrom = \"jpg\"\n\
             decode = \"geometry\"\n{geometry}\n[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
             ops = [{{ letterbox = [32, 48] }}]\n[[column]]\nname = \"size\"\nfrom = \"jpg\"\ndecode = \"image_size\"\n\
             follows = \"image\"\n"
        ))
    }

    #[test]
    fn a_matrix_and_a_size_survive_storage() {
        let job = job("follows = \"image\"").unwrap();
        assert_eq!([0, 2].map(|column| job.columns[column].sample_shape().unwrap()), [vec![3, 3], vec![2]]);
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
    }

    #[test]
    fn what_they_cannot_follow_is_named() {
        for (keys, expected) in [
            ("", "column `geometry`: `follows` is missing; write the name of the image column"),
            (
                "follows = \"size\"",
                "`follows` is `size`, a column of decode = \"image_size\"; it has to be of decode = \"image\"",
            ),
            ("follows = \"image\"\ndtype = \"i64\"", "`dtype` cannot be i64 for decode = \"geometry\""),
        ] {
            let error = job(keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
