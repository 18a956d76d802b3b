! Words and events sent to another image, in co-arrays of any size: a library may fail for some sizes only.
module mm_caf_trials
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: event_type
  implicit none
  private
  integer(c_int64_t), allocatable :: lone[:]
  integer(c_int64_t), allocatable :: row(:)[:]
  type(event_type), allocatable :: arrived(:)[:]

contains

  ! Collective. Allocates a scalar, and the given number of elements and events per image. Returns 0, or another number
  ! if memory is insufficient.
  integer(c_int) function mm_caf_trial_open(elements) bind(c)
    integer(c_int), value :: elements
    integer :: status
    allocate (lone[*], row(elements)[*], stat=status)
    mm_caf_trial_open = int(status, c_int)
    if (status /= 0) return
    allocate (arrived(elements)[*])
    lone = 0
    row = 0
    sync all
  end function

  subroutine mm_caf_trial_close() bind(c)
    sync all
    deallocate (lone, row, arrived)
  end subroutine

  ! Collective. Puts a word to an image, as a scalar or as the last element; complete on return.
  subroutine mm_caf_trial_put(word, image, as_element) bind(c)
    integer(c_int64_t), value :: word
    integer(c_int), value :: image, as_element
    sync all
    if (as_element /= 0) then
      row(size(row))[image] = word
    else
      lone[image] = word
    end if
    sync all
  end subroutine

  integer(c_int64_t) function mm_caf_trial_got(as_element) bind(c)
    integer(c_int), value :: as_element
    if (as_element /= 0) then
      mm_caf_trial_got = row(size(row))
    else
      mm_caf_trial_got = lone
    end if
  end function

  ! Collective. Posts every event of an image once, without waiting: a lost event would block the wait forever.
  subroutine mm_caf_trial_post(image) bind(c)
    integer(c_int), value :: image
    integer :: i
    sync all
    do i = 1, size(arrived)
      event post (arrived(i)[image])
    end do
    sync all
  end subroutine

  ! The number of events of this image whose count differs from `posts`.
  integer(c_int) function mm_caf_trial_uncounted(posts) bind(c)
    integer(c_int), value :: posts
    integer :: i, counted
    mm_caf_trial_uncounted = 0
    do i = 1, size(arrived)
      call event_query(arrived(i), counted)
      if (counted /= posts) mm_caf_trial_uncounted = mm_caf_trial_uncounted + 1
    end do
  end function

end module
