"""tf.data over TFRecord files of one sample each."""

from arrays import arrays_of, files
from peer import tfdata

TITLE = "tf.data"
LAYER, REQUIREMENTS, PACKAGES = tfdata.LAYER, tfdata.REQUIREMENTS, tfdata.PACKAGES
ENVIRONMENT = "tfdata"
FORMAT, SLOW = "tfrecord", ""


def prepare(data) -> None:
    import numpy
    import tensorflow as tf

    arrays, random = arrays_of(data), numpy.random.default_rng(17)
    for number in range(arrays.files):
        with tf.io.TFRecordWriter(str(data.format(FORMAT) / f"{number:05}.tfrecord")) as writer:
            features = {}
            for name in arrays.names:
                values = arrays.column(name, 1, random)[0]
                if values.dtype == "uint8":
                    features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[values.tobytes()]))
                else:
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def batches(data, settings):
    import tensorflow as tf

    columns = arrays_of(data).columns
    features = {
        name: tf.io.FixedLenFeature([], tf.string) if kind == "uint8" else tf.io.FixedLenFeature(shape, kind)
        for name, (kind, shape) in columns.items()
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        bare = {name: tf.io.decode_raw(example[name], tf.uint8) for name, (kind, _) in columns.items() if kind == "uint8"}
        return example | {name: tf.ensure_shape(value, columns[name][1]) for name, value in bare.items()}

    paths = tf.data.Dataset.from_tensor_slices(files(data, FORMAT)).shuffle(len(files(data, FORMAT))).repeat()
    options = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
    samples = paths.interleave(tf.data.TFRecordDataset, cycle_length=4, **options).map(parse, **options)
    return samples.batch(settings.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
