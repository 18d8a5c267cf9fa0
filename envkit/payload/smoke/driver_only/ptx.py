"""PTX text of the tests that need no compiler: of an old language version, which every driver can compile.

The target is the oldest that all of today's drivers still translate to any GPU after it (PTX ISA, directive .target:
code for one target runs on every later one).
"""

from __future__ import annotations

HEAD = """.version 5.0
.target sm_50
.address_size 64
"""

ADD = (
    HEAD
    + """
.visible .entry ptx_add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
    .reg .pred %p;
    .reg .u32 %i, %n, %x, %y, %d, %t;
    .reg .u64 %a, %b, %c, %o;
    ld.param.u64 %a, [pa];
    ld.param.u64 %b, [pb];
    ld.param.u64 %c, [pc];
    ld.param.u32 %n, [pn];
    mov.u32 %i, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %d, %t;
    setp.ge.u32 %p, %i, %n;
    @%p bra done;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    add.u64 %b, %b, %o;
    add.u64 %c, %c, %o;
    ld.global.u32 %x, [%a];
    ld.global.u32 %y, [%b];
    add.u32 %x, %x, %y;
    st.global.u32 [%c], %x;
done:
    ret;
}

.visible .entry ptx_add_stride(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
    .reg .pred %p;
    .reg .u32 %i, %n, %x, %y, %d, %t, %g;
    .reg .u64 %a, %b, %c, %o, %q;
    ld.param.u64 %a, [pa];
    ld.param.u64 %b, [pb];
    ld.param.u64 %c, [pc];
    ld.param.u32 %n, [pn];
    mov.u32 %i, %ctaid.x;
    mov.u32 %d, %ntid.x;
    mov.u32 %t, %tid.x;
    mov.u32 %g, %nctaid.x;
    mad.lo.u32 %i, %i, %d, %t;
    mul.lo.u32 %g, %g, %d;
next:
    setp.ge.u32 %p, %i, %n;
    @%p bra done;
    mul.wide.u32 %o, %i, 4;
    add.u64 %q, %a, %o;
    ld.global.u32 %x, [%q];
    add.u64 %q, %b, %o;
    ld.global.u32 %y, [%q];
    add.u32 %x, %x, %y;
    add.u64 %q, %c, %o;
    st.global.u32 [%q], %x;
    add.u32 %i, %i, %g;
    bra next;
done:
    ret;
}
"""
).encode()

# ptx_step makes *p = *p * m + s; two of them with different numbers do not commute.  ptx_spin stays busy for as many
# clock cycles of its multiprocessor as it is told, and leaves how many went by.
STEPS = (
    HEAD
    + """
.visible .entry ptx_step(.param .u64 pp, .param .u32 pm, .param .u32 ps)
{
    .reg .u32 %x, %m, %s;
    .reg .u64 %a;
    ld.param.u64 %a, [pp];
    ld.param.u32 %m, [pm];
    ld.param.u32 %s, [ps];
    ld.global.u32 %x, [%a];
    mad.lo.u32 %x, %x, %m, %s;
    st.global.u32 [%a], %x;
    ret;
}

.visible .entry ptx_spin(.param .u64 pp, .param .u64 pc)
{
    .reg .pred %p;
    .reg .u64 %a, %c, %s, %e;
    ld.param.u64 %a, [pp];
    ld.param.u64 %c, [pc];
    mov.u64 %s, %clock64;
more:
    mov.u64 %e, %clock64;
    sub.u64 %e, %e, %s;
    setp.lt.u64 %p, %e, %c;
    @%p bra more;
    st.global.u64 [%a], %e;
    ret;
}
"""
).encode()
