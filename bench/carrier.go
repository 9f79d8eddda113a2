package bench

import (
	"slices"

	"kvbench/internal/hostinfo"
	"kvbench/model"
	"kvbench/results"
	"kvbench/transport"
)

// carrier returns the device that carried the data at one side: the RDMA port that the
// path describes, else the interface that connects the two sides if the path names it,
// else a device with only a name. It returns the zero Device if the path names no device.
func carrier(h hostinfo.Host, p transport.Path) hostinfo.Device {
	switch {
	case p.Port != nil:
		return hostinfo.Device{Name: p.Device, MTU: p.Port.MTU, BytesPerSecond: p.Port.BytesPerSecond}
	case p.Device != h.Device.Name:
		return hostinfo.Device{Name: p.Device}
	}
	return h.Device
}

// along completes the assumptions for the path that an outcome took. An auto link takes
// the rate of the producer's device; a device without a real rate (loopback, veth) leaves
// no link. Ethernet that carried RDMA counts as RDMA, and an MTU that was not given is
// the device's.
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

// over adapts an Ethernet link, or a bare rate taken for one, to the link layer of the
// RDMA port that carried the data. The assumptions stay as they are if the given framing
// does not apply to the new link.
func (a Assumptions) over(layer transport.LinkLayer) Assumptions {
	link, mtu := *a.Link, a.MTU
	switch named := slices.Contains(model.LinkNames(), link.Name); {
	case layer == transport.RoCE:
		link = link.OverRDMA()
	case layer == transport.InfiniBand && !named:
		// An MTU given beside a bare rate may be IP's.
		if link.Kind = model.InfiniBand; link.Check(mtu, a.Framing) != nil {
			mtu = 0
		}
	}
	if link.Check(mtu, a.Framing) == nil {
		a.Link, a.MTU = &link, mtu
	}
	return a
}

// carriers returns the devices of both sides of a record.
func carriers(run *results.Run) (producer, consumer hostinfo.Device) {
	return carrier(run.Producer.Host, run.Transport.Path), carrier(run.Consumer.Host, run.Transport.Consumer)
}
