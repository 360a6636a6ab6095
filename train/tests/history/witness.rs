//! Sees every call by which this process changes what is below a watched folder, in order and with
//! contents, and lets the disk there be full.
//!
//! The functions of the C library that change files are defined here anew; the linker (in the test)
//! and the loader (where a program is started with this as a preloaded library) put them before the
//! library's own. Each does its work by the system call and tells what was done. That nothing is
//! missed is seen at the end of a session: what was told, done again, has to make the same folder.

#![allow(unsafe_code)] // functions of the C library

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Something that was done to a disk. Paths are those below the watched folder, which itself is
/// the empty one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// A folder was made.
    MakeFolder(PathBuf),
    /// An empty file was made.
    MakeFile(PathBuf),
    /// Bytes were written into a file, from this place on.
    Write(PathBuf, u64, Vec<u8>),
    /// A file was cut, or filled up with zeros, to this length in bytes.
    Cut(PathBuf, u64),
    /// A file or folder has another name now; what had that name is gone.
    Rename(PathBuf, PathBuf),
    /// A file or an empty folder was removed.
    Remove(PathBuf),
    /// What a file holds, or the names in a folder, are safe from a power cut.
    Sync(PathBuf),
}

/// A disk that is full for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Full {
    /// From when to when, counted in operations, those that it lets fail among them.
    pub while_at: Range<usize>,
    /// Bytes that there is still room for.
    pub room: u64,
}

/// What the witness is to do in a program that it is loaded before.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The folder to watch.
    pub folder: PathBuf,
    /// The file to write each operation into, as JSON, a line each.
    pub journal: PathBuf,
    /// When the disk is full.
    pub full: Option<Full>,
    /// The signal to send to the program, after so many operations.
    pub signal: Option<(usize, c_int)>,
}

/// The variable that names the file with the orders, as JSON.
pub const ORDERS: &str = "EMBER_WITNESS";

/// A folder that is watched.
struct Watch {
    folder: PathBuf,
    full: Option<Full>,
    /// Operations, those among them that failed for want of room.
    count: usize,
    told: Box<dyn FnMut(Operation) + Send>,
}

impl Watch {
    /// Bytes that there is room for; `None`: as many as the machine's own disk takes.
    fn room(&self) -> Option<u64> {
        self.full.as_ref().filter(|full| full.while_at.contains(&self.count)).map(|full| full.room)
    }

    fn tell(&mut self, operation: Operation) {
        if let (Some(_), Operation::Write(_, _, bytes), Some(full)) = (self.room(), &operation, &mut self.full) {
            full.room -= bytes.len() as u64;
        }
        self.count += 1;
        (self.told)(operation);
    }
}

/// Every call goes through here: none but those of watched folders may pay for it.
static ANY: AtomicBool = AtomicBool::new(false);
static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells `told` of all that is done below `folder`, an absolute path without links, from now on.
pub fn watch(folder: &Path, full: Option<Full>, told: impl FnMut(Operation) + Send + 'static) {
    watches().push(Watch { folder: folder.to_owned(), full, count: 0, told: Box::new(told) });
    ANY.store(true, Ordering::SeqCst);
}

/// Watches no longer.
#[allow(dead_code, reason = "a program is watched to its end")]
pub fn unwatch(folder: &Path) {
    watches().retain(|watch| watch.folder != folder);
}

/// What `act` returns of the watch that `path` is below, and of the path from there.
fn of_watch<T>(path: &Path, act: impl FnOnce(&mut Watch, &Path) -> T) -> Option<T> {
    let mut watches = watches();
    let watch = watches.iter_mut().find(|watch| path.starts_with(&watch.folder))?;
    let below = path.strip_prefix(&watch.folder).ok()?.to_owned();
    Some(act(watch, &below))
}

/// Tells of what was done to `path`, where it was done and is watched.
fn tell(path: Option<&Path>, done: c_long, operation: impl FnOnce(PathBuf) -> Operation) -> c_long {
    if let (Some(path), true) = (path, done >= 0) {
        of_watch(path, |watch, below| watch.tell(operation(below.to_owned())));
    }
    done
}

/// The path that `name` means in the folder `at`, where anything is watched.
fn path_at(at: c_int, name: *const c_char) -> Option<PathBuf> {
    if !ANY.load(Ordering::Relaxed) || name.is_null() {
        return None;
    }
    // SAFETY: the caller's path, a C string.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    match at {
        _ if name.is_absolute() => Some(name.to_owned()),
        libc::AT_FDCWD => Some(std::env::current_dir().ok()?.join(name)),
        folder => Some(path_of(folder)?.join(name)),
    }
}

/// The path of an open file, whatever it was called when it was opened.
fn path_of(file: c_int) -> Option<PathBuf> {
    let is_watched = ANY.load(Ordering::Relaxed);
    is_watched.then(|| std::fs::read_link(format!("/proc/self/fd/{file}")).ok()).flatten()
}

/// Fails a call for want of room, which takes its time too.
fn refuse(path: Option<&Path>) -> c_long {
    path.map(|path| of_watch(path, |watch, _| watch.count += 1));
    // SAFETY: the place of this thread's own error number.
    unsafe { *libc::__errno_location() = libc::ENOSPC };
    -1
}

fn is_full(path: Option<&Path>) -> bool {
    path.and_then(|path| of_watch(path, |watch, _| watch.room() == Some(0))).unwrap_or(false)
}

fn open_at(at: c_int, name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let path = path_at(at, name).filter(|_| flags & (libc::O_CREAT | libc::O_TRUNC) != 0);
    let was_there = path.as_ref().is_some_and(|path| path.symlink_metadata().is_ok());
    if !was_there && is_full(path.as_deref()) {
        return refuse(path.as_deref()) as c_int;
    }
    // SAFETY: the caller's own arguments.
    let file = unsafe { libc::syscall(libc::SYS_openat, at, name, flags, mode) };
    let made = |path| if was_there { Operation::Cut(path, 0) } else { Operation::MakeFile(path) };
    if !was_there || flags & libc::O_TRUNC != 0 {
        tell(path.as_deref(), file, made);
    }
    file as c_int
}

/// As many of the bytes as there is room for.
fn write_some(file: c_int, bytes: *const c_void, count: usize) -> isize {
    let path = path_of(file);
    let room = path.as_ref().and_then(|path| of_watch(path, |watch, _| watch.room())).flatten();
    let fits = room.map_or(count, |room| count.min(room as usize));
    if fits < count && fits == 0 {
        return refuse(path.as_deref()) as isize;
    }
    // SAFETY: the caller's own arguments, and no more bytes than it has.
    let written = unsafe { libc::syscall(libc::SYS_write, file, bytes, fits) };
    if let (Some(path), 1..) = (path, written) {
        // SAFETY: a file that is open, and bytes that were just written from there.
        let (end, bytes) = unsafe {
            let end = libc::syscall(libc::SYS_lseek, file, 0, libc::SEEK_CUR) as u64;
            (end, std::slice::from_raw_parts(bytes.cast::<u8>(), written as usize))
        };
        of_watch(&path, |watch, below| {
            watch.tell(Operation::Write(below.to_owned(), end - written as u64, bytes.to_vec()));
        });
    }
    written as isize
}

fn rename_at(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: u32) -> c_int {
    let paths = (path_at(from_at, from), path_at(to_at, to));
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_renameat2, from_at, from, to_at, to, flags) };
    if let (Some(from), Some(to), 0) = (paths.0, paths.1, done) {
        of_watch(&from, |watch, below| {
            let to = to.strip_prefix(&watch.folder).unwrap_or(&to).to_owned();
            watch.tell(Operation::Rename(below.to_owned(), to));
        });
    }
    done as c_int
}

fn remove_at(at: c_int, name: *const c_char, flags: c_int) -> c_int {
    let path = path_at(at, name);
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_unlinkat, at, name, flags) };
    tell(path.as_deref(), done, Operation::Remove) as c_int
}

fn make_folder_at(at: c_int, name: *const c_char, mode: libc::mode_t) -> c_int {
    let path = path_at(at, name);
    if is_full(path.as_deref()) {
        return refuse(path.as_deref()) as c_int;
    }
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_mkdirat, at, name, mode) };
    tell(path.as_deref(), done, Operation::MakeFolder) as c_int
}

fn sync(file: c_int, call: c_long) -> c_int {
    // SAFETY: the caller's own argument.
    let done = unsafe { libc::syscall(call, file) };
    tell(path_of(file).as_deref(), done, Operation::Sync) as c_int
}

thread_local! {
    /// What a clock that is not the machine's says next, and how much later each time: nanoseconds.
    static CLOCK: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Lets the clocks of this thread go by so many nanoseconds each time that one is read, whatever
/// truly passes.
#[allow(dead_code, reason = "a program has the machine's clock")]
pub fn set_tick(tick: u64) {
    CLOCK.with(|clock| clock.set(Some((clock.get().map_or(1_000_000_000, |(now, _)| now), tick))));
}

/// Defines functions of the C library.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $back:ty = $body:expr;)*) => {$(
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $back {
            $body
        }
    )*};
}

calls! {
    open64(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int = open_at(libc::AT_FDCWD, name, flags, mode);
    write(file: c_int, bytes: *const c_void, count: usize) -> isize = write_some(file, bytes, count);
    ftruncate64(file: c_int, length: i64) -> c_int = cut(file, length);
    rename(from: *const c_char, to: *const c_char) -> c_int = rename_at(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0);
    renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int =
        rename_at(from_at, from, to_at, to, 0);
    renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: u32) -> c_int =
        rename_at(from_at, from, to_at, to, flags);
    unlink(name: *const c_char) -> c_int = remove_at(libc::AT_FDCWD, name, 0);
    rmdir(name: *const c_char) -> c_int = remove_at(libc::AT_FDCWD, name, libc::AT_REMOVEDIR);
    unlinkat(at: c_int, name: *const c_char, flags: c_int) -> c_int = remove_at(at, name, flags);
    mkdir(name: *const c_char, mode: libc::mode_t) -> c_int = make_folder_at(libc::AT_FDCWD, name, mode);
    fsync(file: c_int) -> c_int = sync(file, libc::SYS_fsync);
    fdatasync(file: c_int) -> c_int = sync(file, libc::SYS_fdatasync);
    statvfs64(name: *const c_char, found: *mut libc::statvfs) -> c_int = free(name, found);
    clock_gettime(clock: libc::clockid_t, now: *mut libc::timespec) -> c_int = read_clock(clock, now);
}

fn cut(file: c_int, length: i64) -> c_int {
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_ftruncate, file, length) };
    tell(path_of(file).as_deref(), done, |path| Operation::Cut(path, length as u64)) as c_int
}

/// What is free on a disk: of a watched one that can be full what it has room for, of any other
/// a tebibyte.
fn free(name: *const c_char, found: *mut libc::statvfs) -> c_int {
    let room = path_at(libc::AT_FDCWD, name).and_then(|path| of_watch(&path, |watch, _| watch.room())).flatten();
    // SAFETY: all zeros are numbers.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    (disk.f_frsize, disk.f_bsize, disk.f_bavail) = (1, 1, room.unwrap_or(1 << 40));
    // SAFETY: the caller's place for it.
    unsafe { found.write(disk) };
    0
}

fn read_clock(clock: libc::clockid_t, now: *mut libc::timespec) -> c_int {
    let Ok(Some((next, tick))) = CLOCK.try_with(Cell::get) else {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, now) as c_int };
    };
    CLOCK.with(|clock| clock.set(Some((next + tick, tick))));
    let (tv_sec, tv_nsec) = ((next / 1_000_000_000) as i64, (next % 1_000_000_000) as i64);
    // SAFETY: the caller's place for it.
    unsafe { now.write(libc::timespec { tv_sec, tv_nsec }) };
    0
}
