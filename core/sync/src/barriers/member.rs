//! State of a participant from one use of a barrier to the next, in shared memory:
//! threads come and go, and so do processes.

use towpath_machine::{Arena, Ordering, Place, Processor};

use crate::{BarrierError, PARKED};

/// Line of a participant, which no other one touches.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Member<P: Processor> {
    /// Number of its arrivals.
    episode: P::Word,
    /// Number of participants; 0 stands for as many as there are places.
    participants: P::Word,
}

impl<P: Processor> Member<P> {
    /// The places, for so many participants.
    pub(super) fn all<const N: usize>(arena: &impl Arena<P>, participants: usize) -> [Self; N] {
        assert!(
            (1..=N).contains(&participants),
            "{participants} participants for a barrier with {N} places: choose one with enough of them"
        );
        core::array::from_fn(|_| Member {
            episode: arena.word(Place::NewLine, 0),
            participants: arena.word(Place::SameLine, participants as u64),
        })
    }

    /// Participant `me` arrives: the number of this episode, from 1, and how many
    /// participants there are.
    #[inline]
    pub(super) fn arrive<const N: usize>(
        members: &[Self; N],
        cpu: &P,
        me: usize,
    ) -> Result<(u64, usize), BarrierError> {
        let member = members.get(me).ok_or(BarrierError::NoSuchParticipant)?;
        // Relaxed, all of them: only this participant uses its line.
        let participants = match cpu.load(&member.participants, Ordering::Relaxed) {
            0 => N,
            n => n.min(N as u64) as usize,
        };
        if me >= participants {
            return Err(BarrierError::NoSuchParticipant);
        }
        let episode = cpu.load(&member.episode, Ordering::Relaxed).wrapping_add(1) & !PARKED;
        cpu.store(&member.episode, episode, Ordering::Relaxed);
        Ok((episode, participants))
    }
}
