//! Records every call by which this process changes files below a watched folder, in order and with
//! contents, and simulates a full disk there, or one that lacks something.
//!
//! This file redefines the C library's functions that change or lock files; the linker (in the
//! test) or the loader (if preloaded into a program) resolves calls to these definitions. Each makes
//! the system call itself and reports the operation. Each session ends with a check that nothing was
//! missed: applying the reported operations again must give the same folder.

#![allow(unsafe_code)] // redefines functions of the C library

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// A change of the disk. Paths are relative to the watched folder, whose own path is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// A folder was made.
    MakeFolder(PathBuf),
    /// An empty file was made.
    MakeFile(PathBuf),
    /// Bytes were written into a file from this offset on.
    Write(PathBuf, u64, Vec<u8>),
    /// A file was truncated, or extended with zeros, to this length in bytes.
    Cut(PathBuf, u64),
    /// A file or folder was renamed from the first path to the second, replacing what was there.
    Rename(PathBuf, PathBuf),
    /// A file or an empty folder was removed.
    Remove(PathBuf),
    /// A file's content, or the names in a folder, were synced.
    Sync(PathBuf),
}

/// A period in which the disk is nearly full.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Full {
    /// The period in numbers of operations, failed ones included.
    pub while_at: Range<usize>,
    /// Bytes still free.
    pub room: u64,
}

/// What a disk cannot do, with the error that says so.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "a program has the machine's disk")]
pub enum Fault {
    /// Sync a folder.
    FolderSync(c_int),
    /// Lock a file.
    Lock(c_int),
}

/// Instructions for the witness when it is preloaded into a program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The folder to watch.
    pub folder: PathBuf,
    /// The file for the operations, one JSON line each.
    pub journal: PathBuf,
    /// When the disk is full.
    pub full: Option<Full>,
    /// The signal to send to the program, after this many operations.
    pub signal: Option<(usize, c_int)>,
}

/// The environment variable with the path of the orders, a JSON file.
pub const ORDERS: &str = "EMBER_WITNESS";

/// A folder that is watched.
struct Watch {
    folder: PathBuf,
    full: Option<Full>,
    /// Operations so far, including those that failed on the full disk.
    count: usize,
    sink: Box<dyn FnMut(Operation) + Send>,
}

impl Watch {
    /// Bytes that are free; `None` for no limit but the real disk's.
    fn room(&self) -> Option<u64> {
        self.full.as_ref().filter(|full| full.while_at.contains(&self.count)).map(|full| full.room)
    }

    fn report(&mut self, operation: Operation) {
        if let (Some(_), Operation::Write(_, _, bytes), Some(full)) = (self.room(), &operation, &mut self.full) {
            full.room -= bytes.len() as u64;
        }
        self.count += 1;
        (self.sink)(operation);
    }
}

/// Whether anything is watched: all calls go through here, and others must stay fast.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes every operation below `folder` to `sink` from now on; `folder` is absolute, without
/// links.
pub fn watch(folder: &Path, full: Option<Full>, sink: impl FnMut(Operation) + Send + 'static) {
    watches().push(Watch { folder: folder.to_owned(), full, count: 0, sink: Box::new(sink) });
    IS_WATCHING.store(true, Ordering::SeqCst);
}

/// Stops watching.
#[allow(dead_code, reason = "a program is watched to its end")]
pub fn unwatch(folder: &Path) {
    watches().retain(|watch| watch.folder != folder);
}

/// Calls `act` with the watch that `path` is in and the path relative to it.
fn with_watch<T>(path: &Path, act: impl FnOnce(&mut Watch, &Path) -> T) -> Option<T> {
    let mut watches = watches();
    let watch = watches.iter_mut().find(|watch| path.starts_with(&watch.folder))?;
    let below = path.strip_prefix(&watch.folder).ok()?.to_owned();
    Some(act(watch, &below))
}

/// Reports an operation on `path`, if it succeeded and the path is watched.
fn report(path: Option<&Path>, done: c_long, operation: impl FnOnce(PathBuf) -> Operation) -> c_long {
    if let (Some(path), true) = (path, done >= 0) {
        with_watch(path, |watch, below| watch.report(operation(below.to_owned())));
    }
    done
}

/// The absolute path of `name` relative to the folder `at`; `None` if nothing is watched.
fn path_at(at: c_int, name: *const c_char) -> Option<PathBuf> {
    if !IS_WATCHING.load(Ordering::Relaxed) || name.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    match at {
        _ if name.is_absolute() => Some(name.to_owned()),
        libc::AT_FDCWD => Some(std::env::current_dir().ok()?.join(name)),
        folder => Some(path_of(folder)?.join(name)),
    }
}

/// The current path of an open file.
fn path_of(file: c_int) -> Option<PathBuf> {
    let is_watched = IS_WATCHING.load(Ordering::Relaxed);
    is_watched.then(|| std::fs::read_link(format!("/proc/self/fd/{file}")).ok()).flatten()
}

/// Fails a call with ENOSPC; it counts as an operation.
fn refuse(path: Option<&Path>) -> c_long {
    path.map(|path| with_watch(path, |watch, _| watch.count += 1));
    fail(libc::ENOSPC)
}

/// Fails a call with this error.
fn fail(error: c_int) -> c_long {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = error };
    -1
}

fn is_full(path: Option<&Path>) -> bool {
    path.and_then(|path| with_watch(path, |watch, _| watch.room() == Some(0))).unwrap_or(false)
}

fn open_at(at: c_int, name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let path = path_at(at, name).filter(|_| flags & (libc::O_CREAT | libc::O_TRUNC) != 0);
    let existed = path.as_ref().is_some_and(|path| path.symlink_metadata().is_ok());
    if !existed && is_full(path.as_deref()) {
        return refuse(path.as_deref()) as c_int;
    }
    // SAFETY: the caller's own arguments.
    let file = unsafe { libc::syscall(libc::SYS_openat, at, name, flags, mode) };
    let made = |path| if existed { Operation::Cut(path, 0) } else { Operation::MakeFile(path) };
    if !existed || flags & libc::O_TRUNC != 0 {
        report(path.as_deref(), file, made);
    }
    file as c_int
}

/// Writes as many of the bytes as there is room for.
fn write_some(file: c_int, bytes: *const c_void, count: usize) -> isize {
    let path = path_of(file);
    let room = path.as_ref().and_then(|path| with_watch(path, |watch, _| watch.room())).flatten();
    let fits = room.map_or(count, |room| count.min(room as usize));
    if fits < count && fits == 0 {
        return refuse(path.as_deref()) as isize;
    }
    // SAFETY: the caller's own arguments, with at most its count.
    let written = unsafe { libc::syscall(libc::SYS_write, file, bytes, fits) };
    if let (Some(path), 1..) = (path, written) {
        // SAFETY: the file is open, and these bytes were just written from the caller's buffer.
        let (end, bytes) = unsafe {
            let end = libc::syscall(libc::SYS_lseek, file, 0, libc::SEEK_CUR) as u64;
            (end, std::slice::from_raw_parts(bytes.cast::<u8>(), written as usize))
        };
        with_watch(&path, |watch, below| {
            watch.report(Operation::Write(below.to_owned(), end - written as u64, bytes.to_vec()));
        });
    }
    written as isize
}

fn rename_at(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: u32) -> c_int {
    let paths = (path_at(from_at, from), path_at(to_at, to));
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_renameat2, from_at, from, to_at, to, flags) };
    if let (Some(from), Some(to), 0) = (paths.0, paths.1, done) {
        with_watch(&from, |watch, below| {
            let to = to.strip_prefix(&watch.folder).unwrap_or(&to).to_owned();
            watch.report(Operation::Rename(below.to_owned(), to));
        });
    }
    done as c_int
}

fn remove_at(at: c_int, name: *const c_char, flags: c_int) -> c_int {
    let path = path_at(at, name);
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_unlinkat, at, name, flags) };
    report(path.as_deref(), done, Operation::Remove) as c_int
}

fn make_folder_at(at: c_int, name: *const c_char, mode: libc::mode_t) -> c_int {
    let path = path_at(at, name);
    // A folder that exists is found to exist, however full the disk is.
    let existed = path.as_ref().is_some_and(|path| path.symlink_metadata().is_ok());
    if !existed && is_full(path.as_deref()) {
        return refuse(path.as_deref()) as c_int;
    }
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_mkdirat, at, name, mode) };
    report(path.as_deref(), done, Operation::MakeFolder) as c_int
}

fn sync(file: c_int, call: c_long) -> c_int {
    if let Some(Fault::FolderSync(error)) = fault()
        && path_of(file).is_some_and(|path| path.is_dir())
    {
        return fail(error) as c_int;
    }
    // SAFETY: the caller's own argument.
    let done = unsafe { libc::syscall(call, file) };
    report(path_of(file).as_deref(), done, Operation::Sync) as c_int
}

fn lock(file: c_int, how: c_int) -> c_int {
    if let Some(Fault::Lock(error)) = fault() {
        return fail(error) as c_int;
    }
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_flock, file, how) as c_int }
}

fn fault() -> Option<Fault> {
    FAULT.try_with(Cell::get).ok().flatten()
}

/// Gives the disk of this thread a fault.
#[allow(dead_code, reason = "a program has the machine's disk")]
pub fn set_fault(fault: Fault) {
    FAULT.with(|cell| cell.set(Some(fault)));
}

thread_local! {
    /// The fault of a thread's disk.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    /// The simulated clock of a thread: its next reading and the increment of each, in nanoseconds.
    static CLOCK: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Makes the clocks of this thread advance by `tick` nanoseconds at each reading, and no more.
#[allow(dead_code, reason = "a program has the machine's clock")]
pub fn set_tick(tick: u64) {
    CLOCK.with(|clock| clock.set(Some((clock.get().map_or(1_000_000_000, |(now, _)| now), tick))));
}

/// Defines functions of the C library.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $back:ty = $body:expr;)*) => {$(
        /// # Safety
        /// As for the C library's function.
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
    flock(file: c_int, how: c_int) -> c_int = lock(file, how);
    statvfs64(name: *const c_char, found: *mut libc::statvfs) -> c_int = free(name, found);
    clock_gettime(clock: libc::clockid_t, now: *mut libc::timespec) -> c_int = read_clock(clock, now);
}

fn cut(file: c_int, length: i64) -> c_int {
    // SAFETY: the caller's own arguments.
    let done = unsafe { libc::syscall(libc::SYS_ftruncate, file, length) };
    report(path_of(file).as_deref(), done, |path| Operation::Cut(path, length as u64)) as c_int
}

/// Free space of a disk: the room of a watched disk while it is limited, otherwise one tebibyte.
fn free(name: *const c_char, found: *mut libc::statvfs) -> c_int {
    let room = path_at(libc::AT_FDCWD, name).and_then(|path| with_watch(&path, |watch, _| watch.room())).flatten();
    // SAFETY: all fields are integers, for which zero is valid.
    let mut disk: libc::statvfs = unsafe { std::mem::zeroed() };
    (disk.f_frsize, disk.f_bsize, disk.f_bavail) = (1, 1, room.unwrap_or(1 << 40));
    // SAFETY: the caller's pointer to its result.
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
    // SAFETY: the caller's pointer to its result.
    unsafe { now.write(libc::timespec { tv_sec, tv_nsec }) };
    0
}
