//! The columns of a job, each alone and with each of its operations alone.

use spdl_job::{CenterCrop, Column, ColumnKind, FunctionCall, ImageColumn, ImageKeys, ImageOp, Job, Kind, Size};

use super::measure::ProfiledPart;

/// Columns to measure together, usually one.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) part: ProfiledPart,
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
}

/// Returns the columns of a job; each column is followed by its variants without its function and with each of its
/// operations.
pub(super) fn of(job: &Job) -> Vec<Variant> {
    let of = |column: &Column| match column.returned() {
        None => of_column(column),
        Some(returned) if returned.number == 0 => vec![of_call(&returned.call, &job.columns)],
        Some(_) => Vec::new(),
    };
    job.columns.iter().flat_map(of).collect()
}

/// Returns the columns that a call makes, as one variant.
fn of_call(call: &FunctionCall, columns: &[Column]) -> Variant {
    let is_returned = |column: &&Column| column.returned().is_some_and(|returned| returned.call == *call);
    let columns: Vec<Column> = columns.iter().filter(is_returned).cloned().collect();
    let name = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    Variant { part: ProfiledPart::Column, name, columns }
}

fn of_column(column: &Column) -> Vec<Variant> {
    let whole = Variant { part: ProfiledPart::Column, name: column.name.clone(), columns: vec![column.clone()] };
    let mut variants = vec![whole];
    let plain = Column { transform: None, dtype: column.decoded_dtype(), ..column.clone() };
    if let Some(transform) = &column.transform {
        let name = format!("without {}", transform.function);
        variants.push(Variant { part: ProfiledPart::Operation, name, columns: vec![plain.clone()] });
    }
    if let ColumnKind::Image(image) = &column.kind {
        for kind in operations(image) {
            let names: Vec<&str> = kind.ops.iter().map(ImageOp::name).collect();
            let name = names.join(" + ");
            let columns = vec![Column { kind: ColumnKind::Image(kind), ..plain.clone() }];
            variants.push(Variant { part: ProfiledPart::Operation, name, columns });
        }
    }
    variants
}

/// Returns the column with each of its operations alone. Where pictures would differ in size, their middle is cut out, or they are resized
/// as in the column.
fn operations(image: &ImageColumn) -> Vec<ImageColumn> {
    let with = |ops| {
        let ImageColumn { layout, color, background, depth, list, .. } = *image;
        let (layout, color, normalise) = (Some(layout), Some(color), image.normalise.clone());
        let keys = ImageKeys { ops, layout, normalise, color, background, depth, ..ImageKeys::default() };
        ImageColumn::read(&keys).ok().map(|kind| ImageColumn { list, ..kind })
    };
    let alone = |op: &ImageOp| {
        let size = match image.size {
            [height, width] if height == width => Size::Square(height),
            size => Size::HeightWidth(size),
        };
        let resized = image.max_pixels().and_then(|_| image.ops.iter().rfind(|op| op.max_pixels().is_some()));
        let last = resized.cloned().unwrap_or(ImageOp::CenterCrop(CenterCrop { size }));
        with(vec![op.clone()]).or_else(|| with(vec![op.clone(), last]))
    };
    let mut found: Vec<ImageColumn> = Vec::new();
    for kind in image.ops.iter().filter_map(alone) {
        if kind.ops != image.ops && !found.contains(&kind) {
            found.push(kind);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use spdl_job::JobFile;
    use spdl_order::DatasetFacts;
    use spdl_types::Fingerprint;

    use super::*;

    /// Returns the names of the variants of an image column, after checking that each is a valid job.
    fn names(keys: &str) -> Vec<String> {
        let text = format!(
            "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n{keys}"
        );
        let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
        let job = JobFile::parse(&text, "job.toml").unwrap().freeze(&facts).unwrap();
        let name = |variant: Variant| {
            Job { columns: variant.columns, mix: None, ..job.clone() }.check().unwrap();
            variant.name
        };
        of(&job).into_iter().map(name).collect()
    }

    #[test]
    fn each_operation_is_alone_and_gives_pictures_of_one_size() {
        let ops = "ops = [{ random_resized_crop = 64 }, \"random_flip\"]";
        assert_eq!(names(ops), ["image", "random_resized_crop", "random_flip + center_crop"]);
        let ops = "ops = [{ resize = 72 }, { center_crop = 64 }]";
        assert_eq!(names(ops), ["image", "center_crop"], "the other one is the whole column");
        assert_eq!(names("ops = [{ resize = [64, 64] }]"), ["image"]);
        assert_eq!(names("ops = [{ resize = 72 }, { center_crop = 64 }]\nmax_rows = 3"), ["image", "center_crop"]);
        let ops = "ops = [\"grayscale\", { smart_resize = 28 }, \"random_flip\"]";
        assert_eq!(names(ops), ["image", "grayscale + smart_resize", "smart_resize", "random_flip + smart_resize"]);
    }

    #[test]
    fn what_one_function_returns_is_measured_together() {
        let keys = "ops = [{ center_crop = 64 }]\n[[function]]\ncall = \"a:b\"\nfields = [\"txt\"]\ncolumns = [\"image\"]\n\
            returns = [{ name = \"image\" }, { name = \"length\", dtype = \"i64\", shape = [] }]";
        assert_eq!(names(keys), ["image, length"]);
    }

    #[test]
    fn a_column_is_also_measured_without_its_function() {
        let keys = "ops = [{ center_crop = 64 }]\ntransform = \"a.b:c\"\nreturns = { shape = [3], dtype = \"f32\" }";
        assert_eq!(names(keys), ["image", "without a.b:c"]);
    }
}
