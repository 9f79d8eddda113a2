package bench

import (
	"slices"

	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
)

// carrier is the device that carried the data at one side: the interface by which the
// two sides met, where that is the one that the path names; what the path tells of an
// RDMA port; else a name of which nothing is known. The zero Device is of a path that
// nobody has looked at.
func carrier(h hostinfo.Host, p transport.Path) hostinfo.Device {
	switch {
	case p.Port != nil:
		return hostinfo.Device{Name: p.Device, MTU: p.Port.MTU, BytesPerSecond: p.Port.BytesPerSecond}
	case p.Device != h.Device.Name:
		return hostinfo.Device{Name: p.Device}
	}
	return h.Device
}

// along is what is assumed of the path that an outcome took. An auto link becomes that
// of the producer's device; one without a real rate (loopback, veth) leaves none.
// Ethernet that carried RDMA is counted as that, and an MTU that was not given is the
// device's.
func (a Assumptions) along(o *Outcome) Assumptions {
	d := carrier(o.Producer.Host, o.Path)
	if a.Link == nil && d.BytesPerSecond > 0 && !d.Loopback {
		a.Link = &model.Link{Name: d.Name, Kind: model.Ethernet, BytesPerSecond: d.BytesPerSecond}
		a.Source = "device"
	}
	if a.Link == nil || a.Link.Kind != model.Ethernet {
		return a
	}
	if o.Path.Port != nil {
		a = a.over(o.Path.Port.Link)
	}
	ownMTU := a.Link.Kind == model.Ethernet || a.Link.Kind == model.RoCE
	if ownMTU && a.MTU == 0 && !d.Loopback && a.Link.Check(d.MTU, a.Framing) == nil {
		a.MTU = d.MTU
	}
	return a
}

// over is what is assumed where an Ethernet link, or a rate that was taken for one, turns
// out to be of an RDMA port. What was said of its framing stays where it means nothing
// there.
func (a Assumptions) over(layer transport.LinkLayer) Assumptions {
	link, mtu := *a.Link, a.MTU
	switch named := slices.Contains(model.LinkNames(), link.Name); {
	case layer == transport.RoCE:
		link = link.OverRDMA()
	case layer == transport.InfiniBand && !named:
		// The MTU that somebody gave beside a mere rate may be the one of IP.
		if link.Kind = model.InfiniBand; link.Check(mtu, a.Framing) != nil {
			mtu = 0
		}
	}
	if link.Check(mtu, a.Framing) == nil {
		a.Link, a.MTU = &link, mtu
	}
	return a
}

// carriers are the devices of both sides of a record.
func carriers(run *results.Run) (producer, consumer hostinfo.Device) {
	return carrier(run.Producer.Host, run.Transport.Path), carrier(run.Consumer.Host, run.Transport.Consumer)
}
