//! The videos of which several samples of a batch take frames, so that one sample has packets decoded for the others, too.

use std::collections::HashMap;

use super::records::FetchedGroup;
use crate::decode::{Decoder, FrameChoice, FrameUser, SharedVideo, UserFrames, VideoIdentity};

/// The videos of which several samples take frames.
#[derive(Debug, Default)]
pub(super) struct SharedVideos<'g> {
    videos: HashMap<VideoIdentity, SharedVideo<'g>>,
    /// For the entries of samples, how many others come before them in their video.
    before: HashMap<u32, usize>,
}

impl<'g> SharedVideos<'g> {
    /// Finds the videos of the samples of groups.
    pub(super) fn find(decoder: &'g Decoder, groups: &'g [FetchedGroup]) -> Self {
        let mut found: HashMap<VideoIdentity, Vec<(u32, FrameUser<'g>)>> = HashMap::new();
        for (names, choice) in decoder.frame_choices() {
            for (group, sample) in groups.iter().flat_map(|group| group.samples().iter().map(move |of| (group, of))) {
                let record = group.record(sample);
                let user = match choice {
                    FrameChoice::Series(wanted) => {
                        let frames = group.frames(&record, wanted).and_then(|frames| frames.frames.as_ref().ok());
                        frames.map(|frames| (VideoIdentity::of_track(&frames.video.track), UserFrames::Series(frames)))
                    }
                    FrameChoice::Clip(clip) => {
                        let video = names.iter().find_map(|name| group.identity(&record, name));
                        let field = |name: &str| group.field(&record, name).ok().flatten();
                        let clip = Decoder::sample_clip(clip, (sample.key(), &field));
                        video.zip(clip.map(UserFrames::Clip))
                    }
                };
                if let Some((video, frames)) = user {
                    let user = FrameUser::new(choice, sample.key(), frames);
                    found.entry(video).or_default().push((sample.entry, user));
                }
            }
        }
        let mut shared = Self::default();
        for (video, users) in found {
            if users.len() > 1 {
                for (nth, (entry, _)) in users.iter().enumerate() {
                    let before = shared.before.entry(*entry).or_default();
                    *before = nth.max(*before);
                }
                let users = users.into_iter().map(|(_, user)| user).collect();
                shared.videos.insert(video, decoder.shared_video(users));
            }
        }
        shared
    }

    /// Returns a video, if several samples take frames of it.
    pub(super) fn get(&self, video: VideoIdentity) -> Option<&SharedVideo<'g>> {
        self.videos.get(&video)
    }

    /// Returns how many samples come before the one at an entry in its video. The later ones mostly find their frames if others are
    /// decoded first.
    pub(super) fn before(&self, entry: u32) -> usize {
        self.before.get(&entry).copied().unwrap_or_default()
    }
}
