"""Layout of a server's state machine: the positions of its states and of the edges between them.

There is one layout for wide windows and one for narrow ones. The stylesheet shows one of them.
"""

from dataclasses import dataclass

from liveness.states import ServerState

_ = ServerState


@dataclass(frozen=True)
class Layout:
    """Positions of all states and edges, in units of the drawing."""

    name: str
    size: tuple[int, int]
    alive: tuple[int, int, int, int]
    """Frame around the states in which a server is alive: left edge, top, width, height."""
    places: dict[ServerState, tuple[int, int, int]]
    """Left edge, middle and width of each state."""
    ways: dict[tuple[ServerState | None, ServerState], tuple[str, int, int, str]]
    """Path of each edge, and the position of its time. An edge from None begins at any alive state."""
    back: dict[tuple[ServerState | None, ServerState], tuple[str, int, int, str]]
    """Edges of a reactivation. They are drawn only if the server was reactivated, and they touch nothing else."""


WIDE = Layout(
    "wide",
    (940, 262),
    (10, 26, 156, 216),
    {
        _.CREATED: (22, 58, 132),
        _.RUNNING: (22, 134, 132),
        _.MAINTENANCE: (22, 210, 132),
        _.DISCONNECTED: (240, 58, 140),
        _.TERMINATING: (240, 134, 140),
        _.ERROR: (240, 210, 140),
        _.TERMINATED_GRACEFULLY: (448, 96, 186),
        _.TERMINATED_FORCED: (448, 172, 186),
        _.NOT_RUNNING: (694, 134, 120),
        _.INACTIVE: (860, 134, 76),
    },
    {
        (_.CREATED, _.RUNNING): ("M88 80V108", 94, 98, "start"),
        (_.RUNNING, _.MAINTENANCE): ("M72 156V184", 66, 174, "end"),
        (_.MAINTENANCE, _.RUNNING): ("M104 188V160", 110, 174, "start"),
        (None, _.DISCONNECTED): ("M166 58H236", 200, 51, "middle"),
        (None, _.TERMINATING): ("M166 134H236", 200, 127, "middle"),
        (None, _.ERROR): ("M166 210H236", 200, 203, "middle"),
        (_.DISCONNECTED, _.TERMINATING): ("M310 80V108", 316, 98, "start"),
        (_.ERROR, _.TERMINATING): ("M310 188V160", 316, 178, "start"),
        (_.TERMINATING, _.TERMINATED_GRACEFULLY): ("M380 124C412 118 412 98 444 96", 414, 96, "middle"),
        (_.TERMINATING, _.TERMINATED_FORCED): ("M380 144C412 150 412 170 444 172", 414, 182, "middle"),
        (_.TERMINATING, _.NOT_RUNNING): ("M380 134H690", 540, 130, "middle"),
        (_.TERMINATED_GRACEFULLY, _.NOT_RUNNING): ("M634 96C664 98 660 122 690 126", 668, 96, "middle"),
        (_.TERMINATED_FORCED, _.NOT_RUNNING): ("M634 172C664 170 660 146 690 142", 668, 182, "middle"),
        (_.DISCONNECTED, _.NOT_RUNNING): ("M380 58H734Q754 58 754 78V108", 540, 51, "middle"),
        (_.ERROR, _.NOT_RUNNING): ("M380 210H734Q754 210 754 190V160", 540, 226, "middle"),
        (_.NOT_RUNNING, _.INACTIVE): ("M814 134H856", 836, 127, "middle"),
    },
    {
        (_.DISCONNECTED, _.RUNNING): ("M310 36C310 4 88 4 88 26", 240, 16, "middle"),
        (_.NOT_RUNNING, _.RUNNING): ("M754 112C754 4 88 4 88 26", 694, 16, "middle"),
        (_.INACTIVE, _.RUNNING): ("M898 112C898 4 88 4 88 26", 860, 16, "middle"),
    },
)

TALL = Layout(
    "tall",
    (340, 468),
    (4, 22, 332, 96),
    {
        _.CREATED: (14, 76, 88),
        _.RUNNING: (124, 76, 88),
        _.MAINTENANCE: (234, 76, 94),
        _.DISCONNECTED: (4, 188, 100),
        _.TERMINATING: (122, 188, 96),
        _.ERROR: (236, 188, 76),
        _.TERMINATED_GRACEFULLY: (44, 282, 110),
        _.TERMINATED_FORCED: (186, 282, 106),
        _.NOT_RUNNING: (114, 370, 112),
        _.INACTIVE: (124, 442, 92),
    },
    {
        (_.CREATED, _.RUNNING): ("M102 76H120", 112, 46, "middle"),
        (_.RUNNING, _.MAINTENANCE): ("M212 68H230", 222, 46, "middle"),
        (_.MAINTENANCE, _.RUNNING): ("M234 86H216", 222, 113, "middle"),
        (None, _.DISCONNECTED): ("M54 118V162", 60, 138, "start"),
        (None, _.TERMINATING): ("M170 118V162", 176, 138, "start"),
        (None, _.ERROR): ("M274 118V162", 268, 138, "end"),
        (_.DISCONNECTED, _.TERMINATING): ("M104 188H118", 112, 160, "middle"),
        (_.ERROR, _.TERMINATING): ("M236 188H222", 228, 160, "middle"),
        (_.TERMINATING, _.TERMINATED_GRACEFULLY): ("M148 210C148 234 99 222 99 250", 94, 236, "end"),
        (_.TERMINATING, _.TERMINATED_FORCED): ("M192 210C192 234 239 222 239 250", 244, 236, "start"),
        (_.TERMINATING, _.NOT_RUNNING): ("M170 210V344", 170, 242, "middle"),
        (_.TERMINATED_GRACEFULLY, _.NOT_RUNNING): ("M99 310C99 332 150 322 150 344", 96, 332, "end"),
        (_.TERMINATED_FORCED, _.NOT_RUNNING): ("M239 310C239 332 190 322 190 344", 242, 332, "start"),
        (_.DISCONNECTED, _.NOT_RUNNING): ("M20 210V350Q20 370 40 370H110", 66, 362, "middle"),
        (_.ERROR, _.NOT_RUNNING): ("M302 210V350Q302 370 282 370H230", 268, 362, "middle"),
        (_.NOT_RUNNING, _.INACTIVE): ("M170 392V416", 176, 408, "start"),
    },
    {
        (_.DISCONNECTED, _.RUNNING): ("M92 166V122", 98, 152, "start"),
        (_.NOT_RUNNING, _.RUNNING): ("M226 384H318V122", 314, 400, "end"),
        (_.INACTIVE, _.RUNNING): ("M216 442H328V122", 324, 436, "end"),
    },
)
