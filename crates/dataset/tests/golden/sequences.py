"""Writes `sequences.tfrecord`: sequence examples as TensorFlow writes them, whose lists of features have 0 to 4 steps.

Run: python sequences.py (TensorFlow 2.21)
"""

from pathlib import Path

import tensorflow as tf

Feature = tf.train.Feature


def integers(*values: int) -> tf.train.Feature:
    return Feature(int64_list=tf.train.Int64List(value=values))


with tf.io.TFRecordWriter(str(Path(__file__).with_name("sequences.tfrecord"))) as writer:
    for number in range(5):
        steps = range(number)
        lists = {
            "frames": [Feature(bytes_list=tf.train.BytesList(value=[bytes([step]) * (step + 2)])) for step in steps],
            "label": [integers(number * 10 + step) for step in steps],
            "pose": [Feature(float_list=tf.train.FloatList(value=[step, -0.5, number / 4])) for step in steps],
        }
        example = tf.train.SequenceExample(
            # A list has the same name.
            context=tf.train.Features(feature={"label": integers(number - 2)}),
            feature_lists=tf.train.FeatureLists(
                feature_list={name: tf.train.FeatureList(feature=list) for name, list in lists.items()}
            ),
        )
        writer.write(example.SerializeToString())
