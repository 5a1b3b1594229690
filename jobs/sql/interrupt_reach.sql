/* whether the caller may touch job j: a client (owner) its own, an operator (null) every one */
(%(owner)s::uuid is null or j.owner_id = %(owner)s::uuid)
