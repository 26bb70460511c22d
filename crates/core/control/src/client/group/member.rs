//! Which member of a group a process is, as users write it.

use std::{fmt, str::FromStr};

/// The most processes of a group.
pub const MAX_MEMBERS: u32 = 64;

/// The place of a process in the group that shares its rank: the member m of M, below which member 0 leads. Written `m/M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    member: u32,
    members: u32,
}

/// A place in a group that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum GroupMemberError {
    /// The text has another form.
    #[error("is `{0}`, not MEMBER/MEMBERS, such as 0/8")]
    Form(String),
    /// The numbers do not fit.
    #[error("is {member} of {members}: members are 0 to MEMBERS - 1, and a group has 1 to {MAX_MEMBERS}")]
    Range { member: u32, members: u32 },
}

impl GroupMember {
    /// A process that shares its rank with none.
    pub const ALONE: Self = Self { member: 0, members: 1 };

    /// Returns the place of `member` among `members` processes.
    ///
    /// # Errors
    /// [`GroupMemberError::Range`] if there is no such place.
    pub const fn new(member: u32, members: u32) -> Result<Self, GroupMemberError> {
        if member < members && members <= MAX_MEMBERS {
            return Ok(Self { member, members });
        }
        Err(GroupMemberError::Range { member, members })
    }

    /// Returns the number of this member.
    #[must_use]
    pub const fn member(self) -> u32 {
        self.member
    }

    /// Returns the number of members.
    #[must_use]
    pub const fn members(self) -> u32 {
        self.members
    }

    /// Returns whether other processes share the rank.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.members > 1
    }
}

impl FromStr for GroupMember {
    type Err = GroupMemberError;

    fn from_str(text: &str) -> Result<Self, GroupMemberError> {
        let number = |text: &str| text.trim().parse().ok();
        let parsed = text.split_once('/').and_then(|(member, members)| Some((number(member)?, number(members)?)));
        let (member, members) = parsed.ok_or_else(|| GroupMemberError::Form(text.to_owned()))?;
        Self::new(member, members)
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.member, self.members)
    }
}
