//! The end of a log, without the rest of it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// The last lines of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// What is no UTF-8 in the file is replaced.
    pub text: String,
    /// How many there are in it.
    pub lines: usize,
    /// Whether the file has more before it.
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Bytes of text, and of a file's end that is looked at, a block aside.
    most: usize,
    /// Bytes of one read.
    block: usize,
}

const SIZES: Sizes = Sizes { most: 1 << 20, block: 64 << 10 };

/// The last `lines` lines, or fewer: at most 1 MiB, and whole ones, unless a single one is longer. A file that is not
/// there is empty: its run may not have begun.
pub fn tail(path: &Path, lines: usize) -> io::Result<Tail> {
    match File::open(path) {
        Ok(mut file) => tail_of(&mut file, lines, SIZES),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Tail::default()),
        Err(error) => Err(error),
    }
}

fn tail_of(file: &mut (impl Read + Seek), lines: usize, sizes: Sizes) -> io::Result<Tail> {
    let size = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(Tail { truncated: size > 0, ..Tail::default() });
    }
    let (bytes, start) = end_of(file, size, lines, sizes)?;
    let text = String::from_utf8_lossy(&bytes);
    let kept = capped(&text, sizes.most);
    let truncated = start > 0 || kept.len() < text.len();
    Ok(Tail { text: kept.to_owned(), lines: kept.split_inclusive('\n').count(), truncated })
}

/// The file from `lines` lines before its end, or from somewhere before the last `most` bytes; and where that is.
fn end_of(
    file: &mut (impl Read + Seek),
    size: u64,
    lines: usize,
    sizes: Sizes,
) -> io::Result<(Vec<u8>, u64)> {
    // From the last to the first.
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let (mut start, mut wanted, mut read) = (size, lines, 0);
    while start > 0 && read <= sizes.most {
        let length = usize::try_from(start).unwrap_or(usize::MAX).min(sizes.block);
        start -= u64::try_from(length).unwrap_or(start);
        let mut block = vec![0; length];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        // The end of the last line begins no other.
        let looked_at = if blocks.is_empty() { length - 1 } else { length };
        for place in (0..looked_at).rev().filter(|place| block[*place] == b'\n') {
            wanted -= 1;
            if wanted == 0 {
                block.drain(..=place);
                start += u64::try_from(place + 1).unwrap_or(0);
                blocks.push(block);
                return Ok((joined(blocks), start));
            }
        }
        read += length;
        blocks.push(block);
    }
    Ok((joined(blocks), start))
}

fn joined(blocks: Vec<Vec<u8>>) -> Vec<u8> {
    blocks.into_iter().rev().flatten().collect()
}

/// At most `most` bytes from the end: whole lines, or the end of a line that is longer.
fn capped(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut start = text.len() - most;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    // A line may begin right there.
    let line = text.as_bytes()[start - 1..].iter().position(|byte| *byte == b'\n').map(|place| start + place);
    match line {
        Some(line) if line < text.len() => &text[line..],
        Some(_) | None => &text[start..],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Cursor, Write as _};

    use proptest::prelude::*;

    use super::*;

    /// The same, from all of it.
    fn naive(content: &[u8], lines: usize, most: usize) -> Tail {
        let all = String::from_utf8_lossy(content);
        let mut last: Vec<&str> = all.split_inclusive('\n').collect();
        let count = last.len();
        last.drain(..count.saturating_sub(lines));
        while last.len() > 1 && last.iter().map(|line| line.len()).sum::<usize>() > most {
            last.remove(0);
        }
        let mut text = last.concat();
        while text.len() > most {
            text.remove(0);
        }
        let lines = text.split_inclusive('\n').count();
        Tail { truncated: text.len() < all.len(), text, lines }
    }

    #[track_caller]
    fn check(content: &str, lines: usize, expected: (&str, usize, bool)) {
        let (text, count, truncated) = expected;
        let expected = Tail { text: text.into(), lines: count, truncated };
        let sizes = Sizes { most: 10, block: 3 };
        assert_eq!(tail_of(&mut Cursor::new(content), lines, sizes).unwrap(), expected, "{content:?}");
        assert_eq!(naive(content.as_bytes(), lines, 10), expected, "{content:?}");
    }

    #[test]
    fn the_last_lines_are_returned() {
        check("", 0, ("", 0, false));
        check("", 5, ("", 0, false));
        check("a\n", 0, ("", 0, true));
        check("a\n", 1, ("a\n", 1, false));
        check("a\nb\n", 1, ("b\n", 1, true));
        check("a\nb", 1, ("b", 1, true));
        check("a\nb", 2, ("a\nb", 2, false));
        check("\n\n\n", 2, ("\n\n", 2, true));
        check("a\nbcdefgh\nij\n", 3, ("ij\n", 1, true));
        check("bcdefg\nij\n", usize::MAX, ("bcdefg\nij\n", 2, false));
        check("x\nbcdefg\nij\n", usize::MAX, ("bcdefg\nij\n", 2, true));
        check("0123456789abcdef\n", 1, ("789abcdef\n", 1, true));
        check("üüüüüüüü\n", 1, ("üüüü\n", 1, true));
    }

    #[test]
    fn a_file_that_is_not_there_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(tail(&directory.path().join("run.log"), 10).unwrap(), Tail::default());
        assert!(tail(directory.path(), 10).is_err());
    }

    #[test]
    fn what_is_no_text_is_replaced_and_the_text_is_no_longer_for_it() {
        let sizes = Sizes { most: 10, block: 4 };
        let found = tail_of(&mut Cursor::new(b"a\xff\n"), 1, sizes).unwrap();
        assert_eq!(found, Tail { text: "a\u{fffd}\n".into(), lines: 1, truncated: false });
        let found = tail_of(&mut Cursor::new([0xff; 10]), 1, sizes).unwrap();
        assert_eq!(found, Tail { text: "\u{fffd}".repeat(3), lines: 1, truncated: true });
    }

    struct Counting<T>(T, usize);

    impl<T: Read> Read for Counting<T> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1 += read;
            Ok(read)
        }
    }

    impl<T: Seek> Seek for Counting<T> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn of_a_large_file_only_the_end_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.log");
        let mut file = io::BufWriter::new(File::create(&path).unwrap());
        for number in 0..500_000 {
            writeln!(file, "{number:099}").unwrap();
        }
        file.into_inner().unwrap().sync_all().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 50_000_000);
        let read = |lines: usize| {
            let mut file = Counting(File::open(&path).unwrap(), 0);
            let found = tail_of(&mut file, lines, SIZES).unwrap();
            assert_eq!(found, tail(&path, lines).unwrap());
            assert!(found.text.ends_with(&format!("{:099}\n", 499_999)) && found.truncated);
            assert_eq!(found.text.len(), found.lines * 100);
            (found.lines, file.1)
        };
        assert_eq!(read(200), (200, 64 << 10));
        // 1 MiB has room for 10,485 of them.
        let (lines, bytes) = read(usize::MAX);
        assert!(lines == 10_485 && bytes < 2 << 20, "{lines} {bytes}");
        assert!(read(20_000).1 < 2 << 20);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn it_is_what_reading_everything_gives(
            content in prop::collection::vec(prop::sample::select(&b"ab\n\n\xc3\xbc\xff"[..]), 0..80),
            lines in 0_usize..12, most in 3_usize..40, block in 1_usize..20,
        ) {
            let found = tail_of(&mut Cursor::new(&content), lines, Sizes { most, block }).unwrap();
            prop_assert_eq!(found, naive(&content, lines, most));
        }
    }
}
