"""tf.data over TFRecord files: decoding fused with the crop, resizing without antialiasing (tf.image's default),
automatic choice of the number of parallel calls, free order within the shuffle buffer."""

from data import Data, Settings

TITLE = "tf.data"
LAYER = None
REQUIREMENTS = ("tensorflow-cpu==2.21.0",)
PACKAGES = ["tensorflow-cpu"]
FORMAT = "tfrecord"
SLOW = ""
FILES = 8


def prepare(data: Data) -> None:
    import tensorflow as tf

    folder = data.format(FORMAT)
    for part in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"{part:02}.tfrecord")) as writer:
            for path, label in data.samples[part::FILES]:
                with open(path, "rb") as file:
                    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.read()]))
                number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                example = tf.train.Example(features=tf.train.Features(feature={"image": image, "label": number}))
                writer.write(example.SerializeToString())


def dataset(data: Data, settings: Settings, antialias: bool = False):
    """Returns batches for ever, not yet prefetched."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    whole = tf.zeros([1, 0, 4], tf.float32)

    def decode(record):
        example = tf.io.parse_single_example(record, features)
        if settings.whole:
            image = tf.io.decode_jpeg(example["image"], channels=3, dct_method="INTEGER_FAST")
            image = tf.image.resize(image, [settings.size, settings.size], antialias=antialias)
            return tf.cast(tf.round(image), tf.uint8), example["label"]
        shape = tf.io.extract_jpeg_shape(example["image"])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            whole,
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            max_attempts=10,
            min_object_covered=0,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(example["image"], window, channels=3, dct_method="INTEGER_FAST")
        image = tf.image.resize(image, [settings.size, settings.size], antialias=antialias)
        image = tf.image.random_flip_left_right(image)
        return tf.cast(tf.round(image), tf.uint8), example["label"]

    files = tf.data.Dataset.list_files(str(data.format(FORMAT) / "*.tfrecord"), shuffle=True).repeat()
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    decoded = records.shuffle(1000).map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return decoded.batch(settings.batch, drop_remainder=True)


def batches(data: Data, settings: Settings, antialias: bool = False):
    import tensorflow as tf

    return dataset(data, settings, antialias).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
