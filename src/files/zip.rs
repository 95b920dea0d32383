//! The table of a zip archive. Members are read at positions, so that threads share the file.
//!
//! PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5.3. torch stores its members as they are, aligned; archives
//! packed again by other tools deflate them.
#![forbid(unsafe_code)]

use super::limits;
use super::source::{Cursor, Source};
use crate::error::Result;

/// First bytes of an archive with a member.
pub(super) const MAGIC: [u8; 4] = *b"PK\x03\x04";

const END_BYTES: u64 = 22;
const LOCAL_BYTES: u64 = 30;

/// One file within the archive.
#[derive(Debug)]
pub(super) struct Member {
    pub name: String,
    method: u16,
    encrypted: bool,
    pub crc: u32,
    pub compressed: u64,
    pub size: u64,
    header: u64,
}

/// How a member's bytes lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
}

/// The members in the order of the table.
#[derive(Debug)]
pub(super) struct Archive {
    pub members: Vec<Member>,
    /// Where the table starts: no member reaches beyond.
    table: u64,
}

/// Place of the table.
struct End {
    count: u64,
    size: u64,
    offset: u64,
}

impl Archive {
    pub(super) fn read(source: &Source) -> Result<Self> {
        let end = find_end(source)?;
        let fits = end.offset.checked_add(end.size).is_some_and(|e| e <= source.len());
        if !fits || end.count > limits::ZIP_MEMBERS as u64 || end.count > end.size / 46 {
            return Err(source.error(format!(
                "the zip table claims {} members in {} bytes at {}; the file has {} bytes, the limit is {} members",
                end.count,
                end.size,
                end.offset,
                source.len(),
                limits::ZIP_MEMBERS
            )));
        }
        let mut cursor = Cursor::new(source, end.offset);
        let mut members = Vec::with_capacity(end.count as usize);
        let mut names = std::collections::HashSet::new();
        for _ in 0..end.count {
            let member = member(&mut cursor)?;
            if !names.insert(member.name.clone()) {
                return Err(source.error(format!("zip member '{}' occurs twice", member.name)));
            }
            members.push(member);
        }
        Ok(Self { members, table: end.offset })
    }

    /// Number of the member with that name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|m| m.name == name)
    }

    /// First byte and kind of a member, after a look at its own header.
    pub(super) fn place(&self, source: &Source, member: &Member) -> Result<(u64, Method)> {
        let wrong = |what: &str| source.error(format!("zip member '{}' {what}", member.name));
        let method = match member.method {
            _ if member.encrypted => return Err(wrong("is encrypted")),
            0 if member.compressed == member.size => Method::Stored,
            0 => return Err(wrong("is stored, yet has two sizes")),
            8 => Method::Deflated,
            m => return Err(wrong(&format!("is packed by method {m}, stored or deflated was expected"))),
        };
        if method == Method::Deflated
            && (member.size > member.compressed.saturating_mul(limits::INFLATE_RATIO)
                || member.size > limits::INFLATED_BYTES)
        {
            return Err(wrong(&format!("claims to inflate {} to {} bytes", member.compressed, member.size)));
        }
        let mut local = [0; LOCAL_BYTES as usize];
        if member.header.checked_add(LOCAL_BYTES).is_none_or(|e| e > self.table) {
            return Err(wrong("lies outside of the archive"));
        }
        source.read_at(member.header, &mut local)?;
        if local[..4] != MAGIC {
            return Err(wrong("does not start with a header"));
        }
        let start =
            member.header + LOCAL_BYTES + u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        if start.checked_add(member.compressed).is_none_or(|e| e > self.table) {
            return Err(wrong("reaches into the table of the archive"));
        }
        Ok((start, method))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The record at the file's end, after which only a comment of up to 64 KiB may follow.
fn find_end(source: &Source) -> Result<End> {
    let missing = || source.error("is a zip archive without its table at the end: the file may be cut off");
    let tail_len = source.len().min(END_BYTES + 0xffff);
    let tail_at = source.len() - tail_len;
    let tail = source.read_vec(tail_at, tail_len)?;
    let last = tail.len().checked_sub(END_BYTES as usize).ok_or_else(missing)?;
    let at = (0..=last)
        .rev()
        .find(|&i| {
            tail[i..].starts_with(b"PK\x05\x06")
                && i + END_BYTES as usize + usize::from(u16_at(&tail, i + 20)) == tail.len()
        })
        .ok_or_else(missing)?;
    let record = &tail[at..];
    let end = End {
        count: u16_at(record, 10).into(),
        size: u32_at(record, 12).into(),
        offset: u32_at(record, 16).into(),
    };
    // large archives, and all that torch writes, keep the true numbers in a second record
    let locator = at.checked_sub(20).map(|i| &tail[i..at]).filter(|l| l.starts_with(b"PK\x06\x07"));
    let Some(locator) = locator else { return Ok(end) };
    let mut large = [0; 56];
    source.read_at(u64_at(locator, 8), &mut large)?;
    if !large.starts_with(b"PK\x06\x06") {
        return Err(missing());
    }
    Ok(End { count: u64_at(&large, 32), size: u64_at(&large, 40), offset: u64_at(&large, 48) })
}

/// One line of the table.
fn member(cursor: &mut Cursor<'_>) -> Result<Member> {
    let head: [u8; 46] = cursor.array("the zip table")?;
    if !head.starts_with(b"PK\x01\x02") {
        return Err(cursor.error("the zip table is damaged"));
    }
    let name_len = u16_at(&head, 28).into();
    let name = String::from_utf8_lossy(cursor.bytes(name_len, "a zip member's name")?).into_owned();
    let mut member = Member {
        name,
        method: u16_at(&head, 10),
        encrypted: u16_at(&head, 8) & 1 != 0,
        crc: u32_at(&head, 16),
        compressed: u32_at(&head, 20).into(),
        size: u32_at(&head, 24).into(),
        header: u32_at(&head, 42).into(),
    };
    let extra = cursor.bytes(u16_at(&head, 30).into(), "the zip table")?.to_vec();
    large_sizes(&extra, &mut member);
    cursor.bytes(u16_at(&head, 32).into(), "the zip table")?;
    Ok(member)
}

/// Fields that are all ones stand in the extra field 1 instead, in this order.
fn large_sizes(mut extra: &[u8], member: &mut Member) {
    while extra.len() >= 4 {
        let (id, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(mut field) = extra.get(4..4 + len) else { return };
        if id == 1 {
            for value in [&mut member.size, &mut member.compressed, &mut member.header] {
                if *value == u64::from(u32::MAX) && field.len() >= 8 {
                    *value = u64_at(field, 0);
                    field = &field[8..];
                }
            }
            return;
        }
        extra = &extra[4 + len..];
    }
}
