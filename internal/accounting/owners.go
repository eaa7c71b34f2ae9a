package accounting

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxAccounts bounds the owners that are accounted for at once, each on each entity. A node has
	// 110 pods by default; the largest have 500.
	maxAccounts = 4096
	// maxOwners bounds those of one entity. NVIDIA's device plugin divides a GPU into some tens of
	// replicas, its MPS into 48 at most; a job file can name any number.
	maxOwners = 256
	// dormancy is how long an account is kept, unseen, for an owner that is not reported: a counter
	// goes on where it was if the owner was there all the time and only the kubelet, the driver or the
	// session was not.
	dormancy = 15 * time.Minute
)

// An accountKey names an owner on an entity: a pod, or a job by its labels.
type accountKey struct {
	entity         gpu.Identity
	namespace, pod string
	job            string
}

// An entityOwner is one owner of an entity, with all that it has of it.
type entityOwner struct {
	key       accountKey
	owner     *gpu.Owner // its first
	share     float64
	uid       string
	container string // "" for several
	account   *account
}

// assign opens an account for every owner of every entity. Owners that have one keep it; others get
// what room is left, and dormant accounts make room for them, the longest unseen first.
func (s *Accountant) assign(owners *gpu.Owners, now int64) {
	s.owners, s.infos = owners, s.infos[:0:0]
	lists := make([][]entityOwner, len(s.entities))
	for i := range s.entities {
		e := &s.entities[i]
		use := s.ownUse(owners, e)
		if e.unknown = use.Incomplete; !e.unknown {
			lists[i] = ownersOf(e, &use)
		}
		e.shared = len(lists[i]) > 1
		e.accounts = e.accounts[:0:0]
		s.keepAccounts(lists[i], now)
	}
	s.dropped, s.droppedBefore = s.droppedBefore, s.dropped
	clear(s.dropped)
	var dormant []accountKey
	sorted := false
	room := func() bool {
		if len(s.accounts) < maxAccounts {
			return true
		}
		if !sorted {
			dormant, sorted = s.dormant(now), true
		}
		if len(dormant) == 0 {
			return false
		}
		delete(s.accounts, dormant[0])
		dormant = dormant[1:]
		return true
	}
	for i := range s.entities {
		e := &s.entities[i]
		s.openAccounts(e, lists[i], now, room)
		s.next[e.row] = e.shared && len(e.accounts) > 0 && !e.partitioned
		use := owners.UseOf(e.row)
		s.infos = appendInfos(s.infos, e, &use)
	}
	s.rebuildSeries()
}

// ownersOf returns the owners of an entity, each once. Jobs count where no pod owns it: a job that
// runs in a pod is that pod.
func ownersOf(e *entity, use *gpu.Use) []entityOwner {
	pods := 0
	for i := range use.Owners {
		if use.Owners[i].Pod != "" {
			pods++
		}
	}
	replicas := float64(max(use.Replicas, pods))
	if pods == 0 {
		replicas = float64(max(use.Replicas, len(use.Owners)))
	}
	var list []entityOwner
	at := make(map[accountKey]int, len(use.Owners))
	for i := range use.Owners {
		o := &use.Owners[i]
		if pods > 0 && o.Pod == "" {
			continue
		}
		key := keyOf(e, o)
		j, ok := at[key]
		if !ok {
			j = len(list)
			at[key] = j
			list = append(list, entityOwner{key: key, owner: o, container: o.Container})
		}
		h := &list[j]
		h.share += 1 / replicas
		h.uid = cmp.Or(h.uid, o.PodUID)
		if o.Container != h.container {
			h.container = "" // a process is known by its pod
		}
	}
	return list
}

func keyOf(e *entity, o *gpu.Owner) accountKey {
	key := accountKey{entity: e.id, namespace: o.Namespace, pod: o.Pod}
	if o.Pod == "" {
		var b strings.Builder
		b.WriteString(o.Container + "\x00")
		for _, l := range o.Labels {
			b.WriteString(l.Name + "\x00" + l.Value + "\x00")
		}
		key.job = b.String()
	}
	return key
}

// keepAccounts finds the accounts that holders have, up to the bound of an entity.
func (s *Accountant) keepAccounts(list []entityOwner, now int64) {
	kept := 0
	for i := range list {
		h := &list[i]
		a := s.accounts[h.key]
		if a == nil || kept == maxOwners {
			continue
		}
		kept++
		if a.uid != "" && h.uid != "" && a.uid != h.uid {
			*a = account{} // another pod of that name
		}
		a.seen = now
		h.account = a
	}
}

// openAccounts gives the other holders accounts where there is room, and the entity all of them.
func (s *Accountant) openAccounts(e *entity, list []entityOwner, now int64, room func() bool) {
	clear(e.byUID)
	left := maxOwners
	for i := range list {
		if list[i].account != nil {
			left--
		}
	}
	for i := range list {
		h := &list[i]
		if h.account == nil {
			if left == 0 || !room() {
				s.drop(h.key)
				continue
			}
			left--
			h.account = &account{}
			s.accounts[h.key] = h.account
		}
		a := h.account
		a.uid, a.share, a.seen = cmp.Or(h.uid, a.uid), h.share, now
		a.labels = ownerLabels(e, h.owner, h.container)
		a.use = use{}
		e.accounts = append(e.accounts, a)
		if a.uid != "" && e.byUID[a.uid] == nil {
			e.byUID[a.uid] = a
		}
	}
}

// accountOf returns the account of an owner of an entity, nil where it has none now.
func (s *Accountant) accountOf(e *entity, o *gpu.Owner) *account {
	if a := s.accounts[keyOf(e, o)]; slices.Contains(e.accounts, a) {
		return a
	}
	return nil
}

// drop counts an owner that gets no account, once for as long as it stays without.
func (s *Accountant) drop(key accountKey) {
	s.dropped[key] = struct{}{}
	if _, known := s.droppedBefore[key]; !known {
		s.ownersDropped.Inc()
	}
}

// dormant returns the accounts of owners that are not there now, the longest unseen first.
func (s *Accountant) dormant(now int64) []accountKey {
	var list []accountKey
	for key, a := range s.accounts {
		if a.seen != now {
			list = append(list, key)
		}
	}
	slices.SortFunc(list, func(a, b accountKey) int { return cmp.Compare(s.accounts[a].seen, s.accounts[b].seen) })
	return list
}

// sweep forgets what was not seen for long.
func (s *Accountant) sweep(now int64) {
	for key, a := range s.accounts {
		if now-a.seen > int64(dormancy) {
			delete(s.accounts, key)
		}
	}
	bound := make(map[gpu.Identity]bool, len(s.entities))
	for i := range s.entities {
		bound[s.entities[i].id] = true
	}
	for id, l := range s.ledgers {
		if now-l.seen > int64(dormancy) && !bound[id] {
			delete(s.ledgers, id)
		}
	}
}
