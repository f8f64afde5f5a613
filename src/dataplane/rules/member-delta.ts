// The difference between a set as wanted and as it is in the kernel, kept as it changes: a set of a hundred thousand
// members costs nothing while two of them change.

export class MemberDelta {
  readonly wanted = new Set<string>();
  /** Wanted but not there. */
  readonly missing = new Set<string>();
  /** There but not wanted. */
  readonly surplus = new Set<string>();

  get isEmpty(): boolean {
    return this.missing.size === 0 && this.surplus.size === 0;
  }

  add(member: string): void {
    const { size } = this.wanted;
    this.wanted.add(member);
    if (this.wanted.size === size) return;
    if (this.surplus.size === 0 || !this.surplus.delete(member)) this.missing.add(member);
  }

  delete(member: string): void {
    if (!this.wanted.delete(member)) return;
    if (this.missing.size === 0 || !this.missing.delete(member)) this.surplus.add(member);
  }

  replace(members: ReadonlySet<string>): void {
    for (const member of this.wanted) if (!members.has(member)) this.delete(member);
    for (const member of members) this.add(member);
  }

  /** The kernel holds exactly these. */
  found(actual: ReadonlySet<string>): void {
    this.missing.clear();
    this.surplus.clear();
    for (const member of this.wanted) if (!actual.has(member)) this.missing.add(member);
    for (const member of actual) if (!this.wanted.has(member)) this.surplus.add(member);
  }

  /** The kernel was brought to what is wanted. */
  written(): void {
    this.missing.clear();
    this.surplus.clear();
  }
}
