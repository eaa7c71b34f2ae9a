package process

// Known returns how many processes are remembered.
func Known(r *Resolver) int { return len(r.known) }
