//! How a process meets those that it was started with.

use ember_host::interrupt::Interrupt;

use super::launch::Launch;
#[cfg(feature = "mpi")]
use super::mpi::MpiGroup;
use super::process_group::{Alone, ProcessGroup};
use super::watch::Program;
#[cfg(not(feature = "mpi"))]
use crate::error::GroupError;
use crate::error::Result;

/// The group that this process was started in: [`Alone`], unless by an `mpirun` of several.
///
/// # Errors
/// When `mpirun` started several of a program that cannot speak to them: each would train a run of
/// its own, in one folder.
pub fn join(program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    let Some(launch) = Launch::of_this_process() else { return Ok(Box::new(Alone)) };
    join_launched(launch, program, interrupt)
}

#[cfg(feature = "mpi")]
fn join_launched(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    Ok(Box::new(MpiGroup::join(launch, program, interrupt)?))
}

#[cfg(not(feature = "mpi"))]
fn join_launched(launch: Launch, program: Program, _interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    let error = GroupError::NoMpi(launch.size).into();
    if launch.rank > 0 {
        // The process of rank 0 says it, which mpirun would end as soon as another has ended.
        std::thread::sleep(std::time::Duration::from_millis(500));
        return Err(GroupError::SaidElsewhere((program.code)(&error)).into());
    }
    Err(error)
}
