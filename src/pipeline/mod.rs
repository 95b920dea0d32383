//! How a picture or a video is made; no model family is named here.
#![forbid(unsafe_code)]
