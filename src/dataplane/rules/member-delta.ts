// Keeps the difference between the desired members of a set and those in the kernel. It is updated with each change, so the
// cost depends on the number of changes, not on the size of the set.

export class MemberDelta {
  readonly desired = new Set<string>();
  /** Desired, but not in the kernel. */
  readonly missing = new Set<string>();
  /** In the kernel, but not desired. */
  readonly surplus = new Set<string>();

  get isEmpty(): boolean {
    return this.missing.size === 0 && this.surplus.size === 0;
  }

  add(member: string): void {
    const { size } = this.desired;
    this.desired.add(member);
    if (this.desired.size === size) return;
    if (this.surplus.size === 0 || !this.surplus.delete(member)) this.missing.add(member);
  }

  delete(member: string): void {
    if (!this.desired.delete(member)) return;
    if (this.missing.size === 0 || !this.missing.delete(member)) this.surplus.add(member);
  }

  replace(members: ReadonlySet<string>): void {
    for (const member of this.desired) if (!members.has(member)) this.delete(member);
    for (const member of members) this.add(member);
  }

  /** Records the members in the kernel. */
  found(actual: ReadonlySet<string>): void {
    this.missing.clear();
    this.surplus.clear();
    for (const member of this.desired) if (!actual.has(member)) this.missing.add(member);
    for (const member of actual) if (!this.desired.has(member)) this.surplus.add(member);
  }

  /** Must be called after the difference was written. */
  written(): void {
    this.missing.clear();
    this.surplus.clear();
  }
}
