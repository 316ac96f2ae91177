//! The comparison of a file with its index and objects, part by part.

use super::entries::{check_beyond, check_damaged, check_tiers};
use super::header::replace_header;
use super::objects::check_objects;
use super::range_size::infer_range_size;
use super::raw_index::RawIndex;
use super::rebuild::rebuild_index;
use super::size::{check_home_file, check_size};
use super::tally::{Tally, Totals, ranges_placed};
use super::whole::check_whole;
use super::words::check_words;
use super::{CheckedFile, IndexedFile};
use crate::dirs::listings::Listings;
use crate::findings::Findings;
use crate::id_attr::is_unproven;
use crate::report::Problem;
use crate::target::CheckTarget;
use braid_contract::Result;
use braid_format::{FormatError, Header, IdKind, RangeSize};

/// The inode that an index belongs to, by its header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexInode {
    /// That of the file, as far as is known.
    Own,
    /// Another one, which may be the rightful owner of the id.
    Other,
}

/// The comparison of files, one after the other.
pub(crate) struct Comparison<'c> {
    pub(crate) target: &'c CheckTarget<'c>,
    pub(crate) listings: &'c Listings,
    pub(crate) findings: &'c mut Findings,
    pub(crate) totals: &'c mut Totals,
}

impl Comparison<'_> {
    /// Compares a file. If its index names another inode, the index is not
    /// looked at any further.
    pub(crate) fn check(&mut self, file: &CheckedFile) -> Result<IndexInode> {
        if file.attr.kind == IdKind::Emptied {
            self.check_emptied(file)?;
            return Ok(IndexInode::Own);
        }
        if let Some(whole) = file.attr.kind.whole() {
            check_whole(self.target, file, whole, self.listings, self.findings, self.totals)?;
            return Ok(IndexInode::Own);
        }
        match RawIndex::open(&*self.target.braid, file.id()) {
            Ok(Some(index)) if !index.is_cut() => self.compare_with_index(file, &index),
            Ok(found) => {
                if !self.target.is_gone(&file.home.fd) {
                    rebuild_index(self.target, file, found.is_some(), self.findings, self.totals)?;
                }
                Ok(IndexInode::Own)
            }
            Err(error) => {
                let problem = Problem::damage("index-unusable", format!("its index: {error}"));
                self.findings.found(file.of(problem));
                Ok(IndexInode::Own)
            }
        }
    }

    /// A file that is being truncated to nothing.
    fn check_emptied(&mut self, file: &CheckedFile) -> Result<()> {
        let what = "truncating it to nothing was not finished; its next use finishes it";
        self.findings.found(file.of(Problem::legal("emptying", what)));
        match RawIndex::open(&*self.target.braid, file.id()) {
            Ok(Some(index)) => self.count(&index),
            _ => Ok(()),
        }
    }

    fn compare_with_index(&mut self, file: &CheckedFile, index: &RawIndex) -> Result<IndexInode> {
        let of = IndexedFile { target: self.target, file, index };
        let what = match &index.header {
            Err(FormatError::Newer(version)) => {
                let what = format!("its index has format version {version}, which this Braid does not know");
                let problem = file.of(Problem::damage("index-newer", what));
                self.findings.found(problem.repair("nothing is done: use the newer Braid"));
                return Ok(IndexInode::Own);
            }
            Err(error) => format!("the header of its index is damaged: {error}"),
            Ok(header) if header.id != file.id() => {
                format!("the header of its index is that of {}", header.id)
            }
            Ok(header) => return self.compare_with_own_header(of, header),
        };
        match infer_range_size(of)? {
            Some(range_size) => self.compare_with_new_header(of, (0, range_size), what)?,
            None => {
                let problem = file.of(Problem::damage("index-header", what));
                let repair = "nothing is done: nothing tells how long its ranges are";
                self.findings.found(problem.repair(repair));
                self.count(index)?;
            }
        }
        Ok(IndexInode::Own)
    }

    /// As [`Self::compare_with_index`], with a valid header that has the file's id.
    fn compare_with_own_header(&mut self, of: IndexedFile<'_>, header: &Header) -> Result<IndexInode> {
        if header.volume != self.target.volume {
            let what = format!("the header of its index names volume {}", header.volume);
            self.compare_with_new_header(of, (header.plain_size, header.range_size), what)?;
        } else if header.ino != of.file.home.ino() {
            return Ok(IndexInode::Other);
        } else if of.file.home.is_of(header) {
            self.compare(of, header.range_size)?;
        } else {
            self.compare_with_wrong_inode(of.file, of.index, header)?;
        }
        Ok(IndexInode::Own)
    }

    /// Compares a file whose index names another inode, which does not have the
    /// id: the header is wrong, and recovery would take the file for removed.
    pub(crate) fn compare_with_wrong_inode(
        &mut self,
        file: &CheckedFile,
        index: &RawIndex,
        header: &Header,
    ) -> Result<()> {
        let what = format!("its index names inode {}, or another one that had its number", header.ino);
        if is_unproven(self.target, &file.home.fd) {
            let problem = file.of(Problem::damage("index-of-other-file", what));
            let repair = "nothing is done: the file's owner may have given it the id of another file";
            self.findings.found(problem.repair(repair));
            return Ok(());
        }
        let of = IndexedFile { target: self.target, file, index };
        self.compare_with_new_header(of, (header.plain_size, header.range_size), what)
    }

    fn compare_with_new_header(
        &mut self,
        of: IndexedFile<'_>,
        (plain_size, range_size): (u64, RangeSize),
        what: String,
    ) -> Result<()> {
        replace_header(of, (plain_size, range_size), what, self.findings)?;
        self.compare(of, range_size)
    }

    /// Compares entries, words and objects.
    fn compare(&mut self, of: IndexedFile<'_>, range_size: RangeSize) -> Result<()> {
        let size = check_size(of, range_size, self.findings)?;
        let tally = Tally::of(of.index, of.target, size, range_size)?;
        self.totals.ranges += tally.valid;
        self.totals.add(&tally.placed);
        check_damaged(of, &tally, self.findings)?;
        self.totals.names_unknown_tier |= check_tiers(of, &tally, self.findings);
        check_words(of, &tally, self.findings)?;
        check_objects(of, &tally, self.listings, self.findings)?;
        if of.file.is_settled() {
            check_beyond(of, &tally, self.findings);
            check_home_file(of, &tally, self.findings)?;
        }
        Ok(())
    }

    /// Adds the ranges of an index to the totals.
    pub(crate) fn count(&mut self, index: &RawIndex) -> Result<()> {
        self.totals.add(&ranges_placed(index, self.target)?);
        Ok(())
    }
}
